"""The parts of a quantized graph that can be given back their float precision one by one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import TensorProto

from ..export.origin import module_of
from . import scope

# What moves or picks values without changing them: behind these a rounded tensor is rounded still.
_CARRIES = frozenset(
    "CastLike CenterCropPad Concat DepthToSpace Dropout Expand Flatten Gather GatherElements GatherND GlobalMaxPool "
    "Identity MaxPool Pad ReduceMax Reshape Scatter ScatterElements ScatterND Slice SpaceToDepth Split Squeeze Tile "
    "Transpose Unsqueeze".split()
)
_FLOAT = "_float"


@dataclass(frozen=True)
class Unit:
    """Layers that are rounded together or not at all.

    Query, key and value of a block read one rounded tensor; a head that is shared between levels has one weight.

    Args:
        name: After the modules that the layers came from.
        layers: Names of the nodes that compute with rounded values.
        rounded: Names of the tensors that are rounded for them, behind their Q/DQ nodes.
        products: Multiplications of the layers for one image.
    """

    name: str
    layers: tuple[str, ...]
    rounded: tuple[str, ...]
    products: int


def quantized_units(quantized: onnx.ModelProto, source: onnx.ModelProto) -> list[Unit]:
    """Finds the units of a quantized model, in the order of the graph.

    Args:
        quantized: With Q/DQ nodes, as :func:`.nncf_onnx.quantize_onnx` made it.
        source: The float model that it was made from.

    Raises:
        ValueError: A layer has rounded weights without a rounded input.
    """
    graph = _Graph(quantized)
    originals = {node.name: node for node in source.graph.node}
    products = count_products(source)
    groups = _Groups()
    for tensor in graph.rounded:
        for node in graph.readers(tensor):
            groups.join(f"tensor {tensor}", f"node {node.name}")
            module = module_of(originals[node.name]) if node.name in originals else ""
            if module and graph.weights_of(node):
                groups.join(f"node {node.name}", f"module {module}")
    units = []
    for members in groups.all():
        layers = [node.name for node in quantized.graph.node if f"node {node.name}" in members]
        modules = [module_of(originals[name]) for name in layers if name in originals]
        rounded = tuple(tensor for tensor in graph.rounded if f"tensor {tensor}" in members)
        units.append(
            Unit(_joint_name(modules) or layers[0], tuple(layers), rounded, sum(products.get(n, 0) for n in layers))
        )
    covered = {layer for unit in units for layer in unit.layers}
    lost = [node.name for node in quantized.graph.node if graph.weights_of(node) and node.name not in covered]
    if lost:
        raise ValueError(f"the layers {lost[:5]} have rounded weights, but nothing that they read is rounded")
    names = Counter(unit.name for unit in units)
    units = [unit if names[unit.name] == 1 else replace(unit, name=f"{unit.name} {unit.layers[0]}") for unit in units]
    order = {node.name: place for place, node in enumerate(quantized.graph.node)}
    return sorted(units, key=lambda unit: order[unit.layers[0]])


def pin(quantized: onnx.ModelProto, source: onnx.ModelProto, units: Collection[Unit]) -> onnx.ModelProto:
    """Copies a quantized model with some of its units in float.

    Their layers read the unrounded tensors, and weights and biases are those of the source: neither smoothed, nor
    corrected for an error that is not made. With every unit pinned the model is the source again.

    Args:
        quantized: With Q/DQ nodes, as :func:`.nncf_onnx.quantize_onnx` made it; it is not changed.
        source: The float model that it was made from.
        units: From :func:`quantized_units` of the two.
    """
    result = onnx.ModelProto()
    result.CopyFrom(quantized)
    graph = _Graph(result)
    before = _Graph(source)
    present = {tensor.name for tensor in result.graph.initializer}
    for unit in units:
        for tensor in unit.rounded:
            unrounded = graph.unrounded(tensor, before.tensors)
            for node in graph.consumers[tensor]:
                for index, name in enumerate(node.input):
                    if name == tensor:
                        node.input[index] = unrounded
        for layer in unit.layers:
            for node in (graph.nodes[layer], *graph.bias_additions(graph.nodes[layer])):
                original = before.nodes.get(node.name)
                for index, name in enumerate(original.input if original else ()):
                    if name in before.constants:
                        node.input[index] = _stored(result, before.constants[name], present)
    _drop_dead_nodes(result.graph)
    return result


class _Graph:
    """A model indexed by names."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = {node.name: node for node in model.graph.node}
        self.constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self.producers = {name: node for node in model.graph.node for name in node.output}
        self.tensors = {*self.producers, *(value.name for value in model.graph.input)}
        self.consumers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in model.graph.node:
            for name in dict.fromkeys(node.input):
                self.consumers[name].append(node)
        self.rounded = [
            node.output[0]
            for node in model.graph.node
            if node.op_type == "DequantizeLinear" and self._quantizer(node) is not None
        ]

    def _quantizer(self, dequantize: onnx.NodeProto) -> onnx.NodeProto | None:
        node = self.producers.get(dequantize.input[0])
        return node if node is not None and node.op_type == "QuantizeLinear" else None

    def readers(self, rounded: str) -> list[onnx.NodeProto]:
        """The nodes that compute with a rounded tensor, directly or behind nodes that only carry it."""
        found, waiting = [], [rounded]
        while waiting:
            for node in self.consumers[waiting.pop()]:
                if node.op_type in _CARRIES:
                    waiting += node.output
                else:
                    found.append(node)
        return found

    def weights_of(self, layer: onnx.NodeProto) -> list[str]:
        """Inputs of a layer that are rounded constants."""
        producers = [self.producers.get(name) for name in layer.input]
        return [
            node.output[0]
            for node in producers
            if node is not None and node.op_type == "DequantizeLinear" and self._quantizer(node) is None
        ]

    def unrounded(self, rounded: str, before: Collection[str]) -> str:
        """The tensor of the float model behind a rounded one: above its Q/DQ nodes and factors of SmoothQuant."""
        tensor = rounded
        while tensor == rounded or tensor not in before:
            tensor = self.producers[tensor].input[0]
        return tensor

    def bias_additions(self, layer: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The addition of a bias behind a layer, if that is a node of its own."""
        following = self.consumers[layer.output[0]]
        return [node for node in following if node.op_type == "Add" and self.constants.keys() & set(node.input)]


class _Groups:
    """Sets that grow together: a union-find over names."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def _root(self, name: str) -> str:
        while self._parent.setdefault(name, name) != name:
            name = self._parent[name]
        return name

    def join(self, first: str, second: str) -> None:
        self._parent[self._root(first)] = self._root(second)

    def all(self) -> list[set[str]]:
        groups: dict[str, set[str]] = defaultdict(set)
        for name in self._parent:
            groups[self._root(name)].add(name)
        return list(groups.values())


def int8_share(quantized: onnx.ModelProto, source: onnx.ModelProto) -> float:
    """Share of a model's multiplications, those of its post-processing included, that is done in INT8."""
    rounded = sum(unit.products for unit in quantized_units(quantized, source))
    return rounded / max(sum(count_products(source).values()), 1)


def count_products(model: onnx.ModelProto) -> dict[str, int]:
    """Multiplications of each layer and of each product of two activations, for one input of the model.

    Args:
        model: Static; a node whose shapes are not known counts 0.
    """
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
    }
    shapes |= {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    counts = {}
    for node in model.graph.node:
        if node.op_type not in scope.LAYERS:
            continue
        first, second, result = (shapes.get(name, []) for name in (*node.input[:2], node.output[0]))
        if not first or not second or not result:
            counts[node.name] = 0
        elif node.op_type == "Conv":  # per value of the result: input channels of a group times the kernel
            counts[node.name] = math.prod(result) * math.prod(second[1:])
        elif node.op_type == "ConvTranspose":  # per value of the input: output channels of a group times the kernel
            counts[node.name] = math.prod(first) * math.prod(second[1:])
        else:
            counts[node.name] = math.prod(result) * first[-1]
    return counts


def _joint_name(modules: Sequence[str]) -> str:
    """Names of modules with what they share written once: 'backbone.blocks.0.attn.{q,k,v}'."""
    names = [name for name in dict.fromkeys(modules) if name]
    if len(names) < 2:
        return names[0] if names else ""
    parts = [name.split(".") for name in names]
    shared = 0
    while all(len(part) > shared + 1 and part[shared] == parts[0][shared] for part in parts):
        shared += 1
    ends = [".".join(part[shared:]) for part in parts]
    return ".".join([*parts[0][:shared], "{" + ",".join(ends) + "}"])


def _stored(model: onnx.ModelProto, tensor: TensorProto, present: set[str]) -> str:
    """Name of a copy of a float constant in the model; the one of the same name may hold corrected values."""
    name = tensor.name + _FLOAT
    if name not in present:
        copy = model.graph.initializer.add()
        copy.CopyFrom(tensor)
        copy.name = name
        present.add(name)
    return name


def _drop_dead_nodes(graph: onnx.GraphProto) -> None:
    wanted = {value.name for value in graph.output}
    nodes: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if wanted & set(node.output):
            nodes.append(node)
            wanted |= set(node.input)
    kept = list(reversed(nodes))
    constants = [tensor for tensor in graph.initializer if tensor.name in wanted]
    del graph.node[:]
    del graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(constants)
