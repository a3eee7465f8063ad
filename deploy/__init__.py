"""Run an exported vitdense bundle on a device.

This package needs numpy, OpenCV and one runtime (OpenVINO, ONNX Runtime, or TensorRT with cuda-python), and works when
copied alone: ``python -m deploy.doctor``, ``deploy.predict``, ``deploy.stream``, ``deploy.bench``,
``deploy.build_engine``. Nothing is imported here, so that reading a manifest costs neither OpenCV nor a runtime.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036  (JetPack 5 brings 3.8, whose own message would be of a syntax)
    sys.exit(
        f"error: deploy needs Python 3.10 or newer, as JetPack 6 brings it; this is Python {sys.version_info[0]}."
        f"{sys.version_info[1]}. JetPack 5 is not supported: flash the board again."
    )
