"""How often values fall outside the ranges that calibration found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from .units import quantized_units

_LEVELS = {TensorProto.INT8: (-128, 127), TensorProto.UINT8: (0, 255)}
_UNLIKE, _NEGLIGIBLE = 3.0, 1e-3
Tensors = Sequence[npt.NDArray[Any]]


def saturation_record(
    quantized: onnx.ModelProto, source: onnx.ModelProto, calibration: Tensors, others: Tensors, threads: int
) -> dict[str, Any]:
    """How many values are clipped on images that were not calibrated on, for the receipt.

    Args:
        quantized: With Q/DQ nodes, in float32 otherwise.
        source: The float model that it was made from.
        calibration: Preprocessed images of the calibration.
        others: Preprocessed images like those that the model will see.
        threads: CPU threads.

    Returns:
        Mean share over all places where activations are rounded, on the calibration images and on the others; the unit
        with the largest share on the others; whether the others are unlike the calibration images.
    """
    before, after = (saturation(quantized, tensors, threads) for tensors in (calibration, others))
    if not after:
        return {"images": len(others), "calibration": 0.0, "others": 0.0, "worst": None, "unlike": False}
    by_unit = {unit.name: max(after[tensor] for tensor in unit.rounded) for unit in quantized_units(quantized, source)}
    worst = max(by_unit, key=lambda name: by_unit[name])
    on_calibration, on_others = (float(np.mean(list(shares.values()))) for shares in (before, after))
    return {
        "images": len(others),
        "calibration": on_calibration,
        "others": on_others,
        "worst": {"unit": worst, "share": by_unit[worst]},
        "unlike": on_others > max(_UNLIKE * on_calibration, _NEGLIGIBLE),
    }


def saturation(quantized: onnx.ModelProto, tensors: Iterable[npt.NDArray[Any]], threads: int) -> dict[str, float]:
    """Measures the share of values that are clipped at each place where activations are rounded.

    Args:
        quantized: With Q/DQ nodes, in float32 otherwise.
        tensors: Preprocessed images, (N, 3, H, W) each.
        threads: CPU threads.

    Returns:
        Name of the rounded tensor, behind its Q/DQ nodes, to the share of its values, 0 to 1, over all images.

    Raises:
        ImportError: ONNX Runtime is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ImportError(f"quantizing needs ONNX Runtime ({error}): pip install 'vitdense[export]'") from None
    counting = _with_counters(quantized)
    if not counting.graph.output:
        return {}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(counting.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    image = session.get_inputs()[0].name
    shares = np.mean([session.run(names, {image: tensor}) for tensor in tensors], axis=0)
    return {name.removesuffix(_CLIPPED): float(share) for name, share in zip(names, shares, strict=True)}


_CLIPPED = "::clipped"


def _with_counters(quantized: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose outputs are the share of clipped values at each QuantizeLinear."""
    model = onnx.ModelProto()
    model.CopyFrom(quantized)
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    rounded = {node.input[0]: node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    del graph.output[:]
    for node in [node for node in graph.node if node.op_type == "QuantizeLinear"]:
        source, scale, zero = node.input
        name = rounded[node.output[0]]
        lowest, highest = (float(level) - float(constants[zero]) for level in _LEVELS[kinds[zero]])
        # Half a step beyond the last level still rounds to it.
        low, high = ((level + side) * float(constants[scale]) for level, side in ((lowest, -0.5), (highest, 0.5)))
        for suffix, value in (("::low", low), ("::high", high)):
            graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name + suffix))
        steps: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
            ("Clip", [source, f"{name}::low", f"{name}::high"], "::inside", {}),
            ("Equal", [source, f"{name}::inside"], "::equal", {}),
            ("Not", [f"{name}::equal"], "::outside", {}),
            ("Cast", [f"{name}::outside"], "::counted", {"to": TensorProto.FLOAT}),
            ("ReduceMean", [f"{name}::counted"], _CLIPPED, {"keepdims": 0}),
        )
        for kind, inputs, suffix, attributes in steps:
            graph.node.append(helper.make_node(kind, inputs, [name + suffix], name=name + suffix, **attributes))
        graph.output.append(helper.make_tensor_value_info(name + _CLIPPED, TensorProto.FLOAT, []))
    return model
