"""Post-processing of detectors as static graphs."""
