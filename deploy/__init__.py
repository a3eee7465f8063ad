"""Run an exported vitdense bundle on a device.

This package needs numpy, OpenCV and one runtime (OpenVINO or ONNX Runtime), and works when copied alone:
``python -m deploy.predict``, ``python -m deploy.bench``. Nothing is imported here, so that reading a manifest costs
neither OpenCV nor a runtime.
"""
