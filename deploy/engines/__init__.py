"""TensorRT engines of a bundle: how they are built, what they are made of, and when one may be used."""
