"""How a model is quantized for a target: frozen, checked on construction, recorded in the manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Static INT8 quantization of weights and activations by NNCF; what all targets have in common.

    Args:
        smooth_quant_alpha: How much of the activations' range moves into the weights of linear layers, 0 to 1; -1
            switches SmoothQuant off. Defaults to 0.5, the best of 0.95, 0.5 and -1 on the everyday segmenter.
        fast_bias_correction: Whether biases are corrected by the quantization error layer by layer. Defaults to True.
        min_images: Fewest calibration images that are accepted. Defaults to 8.
    """

    target: ClassVar[str]
    smooth_quant_alpha: float = 0.5
    fast_bias_correction: bool = True
    min_images: int = 8

    def __post_init__(self) -> None:
        if self.smooth_quant_alpha != -1 and not 0 <= self.smooth_quant_alpha <= 1:
            raise ValueError(f"smooth_quant_alpha={self.smooth_quant_alpha} must lie in 0..1, or be -1 for off")
        if self.min_images < 1:
            raise ValueError(f"min_images={self.min_images} must be positive")

    def to_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class OpenVINORecipe(Recipe):
    """For CPUs through OpenVINO.

    The transformer model type of NNCF adds SmoothQuant and keeps what a ViT cannot take in INT8 (residual additions,
    norms, softmax) in float; the attention products are quantized, which OpenVINO runs 10 % faster.

    Args:
        preset: 'performance' for symmetric weights and activations (zero points of 0, which every runtime takes), or
            'mixed' for asymmetric activations. Defaults to 'performance'.
        cpu_compat: Whether weights are kept to 7 bits and attention products in float, for CPUs without VNNI, whose
            8-bit products saturate at 16 bits. Defaults to False.
    """

    target = "openvino"
    preset: str = "performance"
    cpu_compat: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset not in ("performance", "mixed"):
            raise ValueError(f"preset='{self.preset}' is unknown; choose 'performance' or 'mixed'")


@dataclass(frozen=True, kw_only=True)
class TensorRTRecipe(Recipe):
    """For NVIDIA devices through TensorRT: explicit symmetric Q/DQ, float16 for the rest, strongly typed.

    The inputs of linear layers and convolutions are quantized. Attention products, norms, softmax, GELU, residual
    additions, transposed convolutions, the patch embedding and the last predictors are left in float16, what
    post-processes a detector in float32.
    """

    target = "tensorrt"
