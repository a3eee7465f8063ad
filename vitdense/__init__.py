"""vitdense: plain Vision Transformers for dense prediction, from pre-training to an INT8 edge device.

Importing it registers every component, so that an OpenMMLab config needs only
``custom_imports = dict(imports=['vitdense'], allow_failed_imports=False)``.
"""

from importlib.metadata import version

try:
    import mmengine  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"vitdense runs on the workstation and needs {error.name}: pip install 'vitdense[train]' (docs/install.md). "
        "On the device, use the package 'deploy', which needs neither torch nor mmengine."
    ) from None

from . import checkpoints, engine, models, openmmlab, registry  # noqa: F401

__version__ = version("vitdense")
