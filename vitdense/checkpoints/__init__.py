"""Reading checkpoints safely and importing pre-trained weights strictly."""

from .from_checkpoint import vit_from_checkpoint, vit_options
from .loader import read_checkpoint, state_dict_of, use_safe_loader
from .pretrained import load_pretrained
from .report import ImportReport
from .resample import resample_patch_kernel
from .trained import Trained, load_trained, save_delta, save_whole

__all__ = [
    "ImportReport",
    "Trained",
    "load_pretrained",
    "load_trained",
    "read_checkpoint",
    "resample_patch_kernel",
    "save_delta",
    "save_whole",
    "state_dict_of",
    "use_safe_loader",
    "vit_from_checkpoint",
    "vit_options",
]
