"""In which precision the layers of an engine compute, read from TensorRT's inspector."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.engines.build import make_log
from deploy.manifest import Manifest
from deploy.specs import PRECISIONS

NARROWEST_FIRST = PRECISIONS[::-1]
# A quantized product whose rounding was fused into it reads float tensors; its kernel's name tells.
_INT8_KERNEL = re.compile(r"i8i8|s8s8|int8|imma", re.IGNORECASE)
_ONNX_LAYER = re.compile(r"\[ONNX Layer: ([^\]]+)\]")


@dataclass(frozen=True)
class EngineLayer:
    """One layer of an engine, which may be many nodes of the file fused.

    Attributes:
        name: TensorRT's.
        precision: 'int8', 'fp16' or 'fp32', in which it computes; '' if it has no tensors of these.
        nodes: Names of the nodes of the ONNX file that it stands for.
    """

    name: str
    precision: str
    nodes: frozenset[str]


@dataclass(frozen=True)
class PrecisionReport:
    """How much of a network runs in which precision.

    Attributes:
        asked: Precision to share of the multiplications for which the file asks for it, 0 to 1.
        found: The same of what the engine does; what is not found in it counts as 'unknown'.
        layers: Precision to number of layers of the engine.
        slower: Names of the nodes that compute in a wider precision than asked, the largest first.
        share: Of the multiplications, those that run as asked or narrower.
    """

    asked: dict[str, float]
    found: dict[str, float]
    layers: dict[str, int]
    slower: tuple[str, ...]
    share: float

    def to_dict(self) -> dict[str, Any]:
        """For the engine's record, with the first nodes only."""
        return {
            "asked": {name: round(value, 4) for name, value in self.asked.items()},
            "found": {name: round(value, 4) for name, value in self.found.items()},
            "layers": self.layers,
            "wider_than_asked": list(self.slower[:20]),
            "share_as_asked": round(self.share, 4),
        }


def read_layers(text: str) -> list[EngineLayer]:
    """Read what the inspector says of an engine that was built with detailed profiling verbosity.

    Args:
        text: From `EngineInspector.get_engine_information` in its JSON format: of TensorRT 8.6 to 10 each tensor has a
            field 'Format/Datatype', of 11 'DataType' and 'Format'.

    Raises:
        ValueError: It is not JSON, or holds no details.
    """
    try:
        # TensorRT separates names in the metadata by a control character.
        values = json.loads(text, strict=False)
    except ValueError as error:
        raise ValueError(f"TensorRT's inspector gave no JSON: {error}") from error
    layers = values.get("Layers") if isinstance(values, dict) else None
    if not isinstance(layers, list) or not layers or not all(isinstance(layer, dict) for layer in layers):
        raise ValueError("TensorRT's inspector gave no details of layers; the engine was built without them")
    return [_layer(layer) for layer in layers]


def _layer(values: Mapping[str, Any]) -> EngineLayer:
    name = str(values.get("Name", ""))
    inputs, outputs = (_types(values.get(side)) for side in ("Inputs", "Outputs"))
    if "int8" in inputs or _INT8_KERNEL.search(str(values.get("TacticName", ""))):
        precision = "int8"
    else:
        # The narrower of what it reads: products of float16 may leave float32.
        precision = next((kind for kind in NARROWEST_FIRST[1:] if kind in (inputs or outputs)), "")
    nodes = _ONNX_LAYER.findall(str(values.get("Metadata", "")))
    # Before metadata there were only names, joined.
    return EngineLayer(name, precision, frozenset(nodes or re.split(r" *(?:\+|\|\|) *", name)))


def _types(tensors: Any) -> set[str]:
    """Types of tensors: 'Half', 'Row major linear FP16 format', 'Channel major INT8 format where ...'."""
    found = set()
    for tensor in tensors if isinstance(tensors, list) else ():
        text = str(tensor.get("DataType", tensor.get("Format/Datatype", ""))).lower()
        for kind, words in (("int8", ("int8",)), ("fp16", ("fp16", "half")), ("fp32", ("fp32", "float"))):
            if any(re.search(rf"(?<![a-z]){word}(?![0-9])", text) for word in words):
                found.add(kind)
                break
    return found


def precision_report(layers: Sequence[EngineLayer], asked: Mapping[str, tuple[str, int]]) -> PrecisionReport:
    """Compare an engine with what its file asks for.

    Args:
        layers: From `read_layers`.
        asked: Node of the file to the precision that it asks for and its multiplications.

    Raises:
        ValueError: Nothing was asked for.
    """
    total = sum(products for _, products in asked.values())
    if not total:
        raise ValueError("the file's record names no layers")
    found: dict[str, str] = {}
    for layer in layers:
        for node in layer.nodes if layer.precision else ():
            # A copy into another layout may bear the node's name as well: the narrowest is the product's.
            found[node] = min(layer.precision, found.get(node, layer.precision), key=NARROWEST_FIRST.index)
    shares_asked: dict[str, int] = {}
    shares_found: dict[str, int] = {}
    slower: list[tuple[int, str]] = []
    for node, (precision, products) in asked.items():
        got = found.get(node, "unknown")
        shares_asked[precision] = shares_asked.get(precision, 0) + products
        shares_found[got] = shares_found.get(got, 0) + products
        if got == "unknown" or NARROWEST_FIRST.index(got) > NARROWEST_FIRST.index(precision):
            slower.append((products, node))
    slower.sort(reverse=True)
    return PrecisionReport(
        asked={name: value / total for name, value in shares_asked.items()},
        found={name: value / total for name, value in shares_found.items()},
        layers={kind: count for kind in PRECISIONS if (count := sum(layer.precision == kind for layer in layers))},
        slower=tuple(node for _, node in slower),
        share=1 - sum(products for products, _ in slower) / total,
    )


def inspect(trt: Any, engine: bytes, manifest: Manifest, model: str, precision: str) -> PrecisionReport:
    """Read from an engine in which precision its layers compute.

    Raises:
        ValueError: It cannot be loaded, or says nothing of its layers.
    """
    log = make_log(trt)
    runtime = trt.Runtime(log)
    loaded = runtime.deserialize_cuda_engine(engine)
    if loaded is None:
        raise ValueError(f"TensorRT cannot load the engine that it built: {'; '.join(log.errors[-2:])}")
    text = loaded.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    asked = {
        node: (kind, products)
        for kind, nodes in manifest.files[model].layers.items()
        for node, products in nodes.items()
    }
    layers = read_layers(text)
    if not asked and precision == "fp32":
        # The float32 file has no record; none of its layers may be narrower.
        asked = {node: ("fp32", 1) for layer in layers for node in layer.nodes if layer.precision}
        narrow = [layer.name for layer in layers if layer.precision in NARROWEST_FIRST[:2]]
        if narrow:
            raise ValueError(f"the fp32 engine computes in fewer bits at {', '.join(narrow[:5])}")
    if not asked:
        raise ValueError(f"the manifest does not say what {model} asks for; run tools/quantize.py again")
    return precision_report(layers, asked)


def check_precision(report: PrecisionReport, precision: str, lowest: float) -> None:
    """Raise a `ValueError` if less than the share `lowest` of the multiplications runs as asked or narrower."""
    if report.share < lowest:
        found = ", ".join(f"{share:.0%} {name}" for name, share in report.found.items())
        raise ValueError(
            f"the {precision} engine is not what was asked for: {report.share:.1%} of its multiplications run as the "
            f"file says or narrower, at least {lowest:.0%} must; it computes {found}. First: "
            f"{', '.join(report.slower[:5])}. Nothing was written; --min-share {report.share:.2f} would take it"
        )
