"""Reading checkpoints safely and importing pre-trained weights strictly."""

from .loader import file_sha256, read_checkpoint, state_dict_of, use_safe_loader
from .pretrained import load_pretrained
from .report import ImportReport
from .resample import resample_patch_kernel
from .trained import load_trained, save_delta

__all__ = [
    "ImportReport",
    "file_sha256",
    "load_pretrained",
    "load_trained",
    "read_checkpoint",
    "resample_patch_kernel",
    "save_delta",
    "state_dict_of",
    "use_safe_loader",
]
