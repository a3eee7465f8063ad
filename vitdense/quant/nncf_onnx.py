"""Calibration and Q/DQ insertion by NNCF, on the exported ONNX file."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

from .recipes import OpenVINORecipe
from .scope import attention_products, float_nodes


def quantize_onnx(
    source: Path, destination: Path, input_name: str, tensors: Sequence[npt.NDArray[Any]], recipe: OpenVINORecipe
) -> None:
    """Writes an INT8 version of an ONNX file with Q/DQ nodes; post-processing stays in float.

    Args:
        source: The FP32 file.
        destination: The file to write.
        input_name: Name of the image input.
        tensors: Preprocessed calibration images, (N, 3, H, W) each.
        recipe: How to quantize.

    Raises:
        ImportError: NNCF is not installed.
    """
    # NNCF sends usage statistics unless it believes to run in CI; nothing leaves a user's machine from here.
    os.environ.setdefault("NNCF_CI", "1")
    try:
        import nncf
        from nncf.quantization.advanced_parameters import (
            AdvancedQuantizationParameters,
            AdvancedSmoothQuantParameters,
            OverflowFix,
        )
    except ImportError:
        raise ImportError("quantizing for OpenVINO needs NNCF: pip install 'vitdense[openvino]'") from None
    nncf.set_log_level(logging.ERROR)
    preset = {"performance": nncf.QuantizationPreset.PERFORMANCE, "mixed": nncf.QuantizationPreset.MIXED}[recipe.preset]
    model = onnx.load(source)
    kept = float_nodes(model) + (attention_products(model) if recipe.cpu_compat else [])
    quantized = nncf.quantize(
        model,
        nncf.Dataset(tensors, lambda tensor: {input_name: tensor}),
        preset=preset,
        subset_size=len(tensors),
        fast_bias_correction=recipe.fast_bias_correction,
        model_type=nncf.ModelType.TRANSFORMER,
        ignored_scope=nncf.IgnoredScope(names=kept),
        advanced_parameters=AdvancedQuantizationParameters(
            # Convolutions keep their ranges: smoothing them cost the everyday segmenter 3.7 points of mIoU.
            overflow_fix=OverflowFix.ENABLE if recipe.cpu_compat else OverflowFix.FIRST_LAYER,
            smooth_quant_alphas=AdvancedSmoothQuantParameters(convolution=-1, matmul=recipe.smooth_quant_alpha),
        ),
    )
    onnx.save(quantized, destination)
