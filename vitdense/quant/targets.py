"""The files that each target gets, and how they are made from the exported one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

from deploy.engines.build import FLOAT32_PREFIX

from . import scope
from .asked import asked_precisions
from .half import to_half
from .nncf_onnx import quantize_onnx
from .recipes import OpenVINORecipe, Recipe, TensorRTRecipe
from .smooth import fold_into_norms
from .units import count_products

HALF_SCALES_OPSET = 19  # the first whose Q/DQ nodes take float16
WEAK_OPSET = 17  # the last that the parser of TensorRT 8.6 reads
Tensors = Sequence[npt.NDArray[Any]]
Asked = dict[str, dict[str, int]]


@dataclass(frozen=True)
class TargetFile:
    """A model file of a target.

    Args:
        name: In the bundle.
        precision: 'fp16' or 'int8'.
        target: As in the manifest.
        tolerance: Up to which a device passes its reference. INT8 kernels round elsewhere on another device, and a
            flipped rounding is one quantization step.
    """

    name: str
    precision: str
    target: str
    tolerance: float


@dataclass(frozen=True)
class Target:
    """What a device family gets.

    Args:
        name: 'openvino' or 'tensorrt'.
        files: The INT8 file that is judged first.
        scored: How many of the files are scored, from the first on.
        runtime: Which runs them on the workstation.
        is_device: Whether that is the runtime of the device as well, so that its latency means something.
        quantize: Makes a float32 model with Q/DQ nodes from the float32 file's model, calibrating on tensors.
        write: Writes the target's files into a folder, from the float32 model and the quantized one. Returns the
            precisions that each file asks for, as in :func:`.asked.asked_precisions`; of some targets none.
    """

    name: str
    files: tuple[TargetFile, ...]
    scored: int
    runtime: str
    is_device: bool
    quantize: Callable[[onnx.ModelProto, str, Tensors, Any], onnx.ModelProto]
    write: Callable[[Path, onnx.ModelProto, onnx.ModelProto], dict[str, Asked]]


def _quantize_openvino(
    model: onnx.ModelProto, input_name: str, tensors: Tensors, recipe: OpenVINORecipe
) -> onnx.ModelProto:
    kept = scope.decoding_nodes(model)
    if kept:  # a segmenter's last layer is as wide as its classes, and was measured in INT8
        kept += scope.last_predictors(model)
    if recipe.cpu_compat:
        kept += scope.attention_products(model)
    return quantize_onnx(
        model, input_name, tensors, recipe, kept, symmetric=recipe.preset == "performance", seven_bits=recipe.cpu_compat
    )


def _write_openvino(folder: Path, model: onnx.ModelProto, quantized: onnx.ModelProto) -> dict[str, Asked]:
    onnx.save(quantized, folder / OPENVINO.files[0].name)
    return {}


def _quantize_tensorrt(
    model: onnx.ModelProto, input_name: str, tensors: Tensors, recipe: TensorRTRecipe
) -> onnx.ModelProto:
    left_alone = {
        *scope.last_predictors(model),
        *scope.patch_embedding(model),
        *scope.transposed_convolutions(model),
    }
    quantized_layers = [name for name in scope.layers(model) if name not in left_alone]
    kept = sorted({node.name for node in model.graph.node} - set(quantized_layers))
    return quantize_onnx(model, input_name, tensors, recipe, kept)


def _write_tensorrt(folder: Path, model: onnx.ModelProto, quantized: onnx.ModelProto) -> dict[str, Asked]:
    post = set(scope.decoding_nodes(model))
    quantized = fold_into_norms(quantized)
    made = (
        to_half(onnx.version_converter.convert_version(quantized, HALF_SCALES_OPSET), post),
        to_half(model, post),
        _marked(_older(quantized), post),
    )
    products = count_products(model)
    asked = {}
    for file, result in zip(TENSORRT.files, made, strict=True):
        onnx.save(result, folder / file.name)
        asked[file.name] = asked_precisions(result, products, weak=file.target == "tensorrt-weak")
    return asked


def _marked(model: onnx.ModelProto, whole: Collection[str]) -> onnx.ModelProto:
    """The model with nodes that must stay in float32 named so, for the builder of weakly typed engines to see."""
    for node in model.graph.node:
        if node.name in whole:
            node.name = FLOAT32_PREFIX + node.name
    return model


def _older(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in the last opset that TensorRT 8.6 reads, or as it is where onnx cannot convert it (Pad, Split)."""
    try:
        older = onnx.version_converter.convert_version(model, WEAK_OPSET)
    except RuntimeError:
        return model
    # The converter leaves an attribute of the next opset in.
    for node in older.graph.node:
        for attribute in [item for item in node.attribute if item.name == "noop_with_empty_axes"]:
            node.attribute.remove(attribute)
    onnx.checker.check_model(older, full_check=True)
    return older


OPENVINO = Target(
    name="openvino",
    files=(TargetFile("model.openvino-int8.onnx", "int8", "openvino", 0.1),),
    scored=1,
    runtime="openvino",
    is_device=True,
    quantize=_quantize_openvino,
    write=_write_openvino,
)
TENSORRT = Target(
    name="tensorrt",
    files=(
        TargetFile("model.tensorrt-int8.onnx", "int8", "tensorrt", 0.1),
        TargetFile("model.tensorrt-fp16.onnx", "fp16", "tensorrt", 0.05),
        TargetFile("model.tensorrt-int8-weak.onnx", "int8", "tensorrt-weak", 0.1),
    ),
    scored=2,
    runtime="onnxruntime",
    is_device=False,
    quantize=_quantize_tensorrt,
    write=_write_tensorrt,
)
TARGETS = {target.name: target for target in (OPENVINO, TENSORRT)}


def target_of(recipe: Recipe) -> Target:
    """The target that a recipe is for."""
    return TARGETS[recipe.target]
