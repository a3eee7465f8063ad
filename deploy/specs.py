"""The parts of a manifest: what goes into a model, what comes out, and what its files are.

All are frozen and check themselves on construction, so that a wrong value is found where it is written and not as a
wrong prediction on a device. Sequences may be given as lists; they are stored as tuples.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

INPUT_DTYPES = ("float32", "uint8")
DETECTION_KINDS = ("boxes", "scores", "labels", "number", "checks")
MASK_KINDS = ("box_masks", "mask_logits")
OUTPUT_KINDS = ("logits", "feature", *DETECTION_KINDS, *MASK_KINDS)
PRECISIONS = ("fp32", "fp16", "int8")
TARGETS = ("any", "openvino", "tensorrt", "tensorrt-weak", "torch")


def check_choice(what: str, value: Any, choices: Sequence[str]) -> None:
    """Raise a `ValueError` naming the choices unless `value` is one of them."""
    if value not in choices:
        raise ValueError(f"{what} is {value!r}; expected one of {', '.join(map(repr, choices))}")


def check_share(option: str, value: float | None) -> None:
    """Raise a `ValueError` unless `value` lies between 0 and 1; None passes, NaN does not."""
    if value is not None and not 0 <= value <= 1:
        raise ValueError(f"{option} {value} must lie between 0 and 1")


def check_file_name(what: str, name: Any) -> None:
    """Raise a `ValueError` unless `name` is a plain file name: a bundle never points outside its own folder."""
    if not isinstance(name, str) or not name or name in (".", "..") or re.search(r"[/\\\x00]", name):
        raise ValueError(f"{what} is {name!r}; expected a plain file name without folders")


def int_tuple(what: str, value: Any) -> tuple[int, ...]:
    """Return `value` as a tuple of positive integers, or raise a `ValueError` that names `what`."""
    items = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    if not items or not all(isinstance(item, int) and not isinstance(item, bool) and item > 0 for item in items):
        raise ValueError(f"{what} is {value!r}; expected a list of positive integers (static shapes only)")
    return items


def finite_float(what: str, value: Any) -> float:
    """Return `value` as a finite float, or raise a `ValueError` that names `what`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{what} is {value!r}; expected a finite number")
    return float(value)


def _float_triple(what: str, value: Any) -> tuple[float, float, float]:
    items = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else ()
    if len(items) != 3:
        raise ValueError(f"{what} is {value!r}; expected three numbers, one per channel")
    first, second, third = (finite_float(what, item) for item in items)
    return first, second, third


def _check_text(what: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{what} is {value!r}; expected a non-empty string")


@dataclass(frozen=True)
class InputSpec:
    """The one image input of a model and how an image becomes it.

    Attributes:
        name: The input's name in the graph.
        shape: (N, 3, H, W).
        dtype: 'float32', or 'uint8' for a graph that normalises by itself.
        color_order: Order of the three channels the graph expects; images are read as BGR.
        mean: Three values on the 0-255 scale, in `color_order`, subtracted first.
        std: Three values on the 0-255 scale, in `color_order`, divided by afterwards.
        normalize_in_graph: Whether subtraction and division are part of the graph; exactly then `dtype` is 'uint8'.
        resize: 'stretch' ignores the aspect ratio; 'letterbox' keeps it and pads at the bottom and on the right.
        layout: 'NCHW'.
        interpolation: 'bilinear'.
        pad_value: In normalised units: padding comes after normalising. A 'uint8' input is padded with the nearest
            grey level per channel, which is off by at most half a level.

    Raises:
        ValueError: A value is out of its range, or two contradict each other.
    """

    name: str
    shape: tuple[int, int, int, int]
    dtype: str
    color_order: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    normalize_in_graph: bool
    resize: str
    layout: str = "NCHW"
    interpolation: str = "bilinear"
    pad_value: float = 0.0

    def __post_init__(self) -> None:
        _check_text("input name", self.name)
        shape = int_tuple("input shape", self.shape)
        if len(shape) != 4 or shape[1] != 3:
            raise ValueError(f"input shape is {list(shape)}; expected [N, 3, H, W]")
        check_choice("input dtype", self.dtype, INPUT_DTYPES)
        check_choice("input color_order", self.color_order, ("RGB", "BGR"))
        check_choice("input resize", self.resize, ("stretch", "letterbox"))
        check_choice("input layout", self.layout, ("NCHW",))
        check_choice("input interpolation", self.interpolation, ("bilinear",))
        if not isinstance(self.normalize_in_graph, bool):
            raise ValueError(f"input normalize_in_graph is {self.normalize_in_graph!r}; expected true or false")
        if (self.dtype == "uint8") != self.normalize_in_graph:
            raise ValueError(
                f"input dtype is {self.dtype!r} with normalize_in_graph={self.normalize_in_graph}; a uint8 input is "
                "one that the graph normalises, a float32 input one that it does not"
            )
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "mean", _float_triple("input mean", self.mean))
        object.__setattr__(self, "std", _float_triple("input std", self.std))
        object.__setattr__(self, "pad_value", finite_float("input pad_value", self.pad_value))
        if min(self.std) <= 0:
            raise ValueError(f"input std is {list(self.std)}; expected three numbers above 0")
        if self.dtype == "uint8" and not all(-0.5 <= level < 255.5 for level in self._raw_pad()):
            raise ValueError(
                f"input pad_value {self.pad_value} is {self._raw_pad()} on the 0-255 scale, which a uint8 input "
                "cannot hold; choose a value between (0 - mean) / std and (255 - mean) / std"
            )

    def _raw_pad(self) -> tuple[float, ...]:
        return tuple(self.pad_value * std + mean for mean, std in zip(self.mean, self.std, strict=True))

    @property
    def size(self) -> tuple[int, int]:
        """(H, W) of the input."""
        return self.shape[2], self.shape[3]

    @property
    def pad_values(self) -> tuple[float, ...]:
        """What each channel is padded with, in units of the tensor: normalised for float32, grey levels for uint8."""
        if self.dtype == "uint8":
            return tuple(float(round(level)) for level in self._raw_pad())
        return (self.pad_value,) * 3


@dataclass(frozen=True)
class OutputSpec:
    """One output of a model.

    Attributes:
        name: The output's name in the graph.
        shape: Static, N first; (N, channels, h, w) for maps.
        dtype: As numpy calls it, for example 'float32'.
        kind: 'logits' (scores of the classes of each cell, before softmax) or 'feature'. Of a detector, room for n
            objects by falling score: 'boxes' (N, n, 4) left, top, right, bottom in pixels of the input, 'scores' and
            'labels' (N, n), 'number' (N,) of them that are real, 'checks' (N, 2): whether the suppression of
            overlapping boxes came to its end, and how many boxes found no room. Masks are 'box_masks' (N, n, m, m),
            probabilities over each box, or 'mask_logits' (N, n, h, w) over the input.
        stride: Input pixels per output cell; may be a fraction (3.5 for patches of 14 enlarged four times), and is 1
            for what is no map.
        meaning: A sentence for the reader of the manifest.

    Raises:
        ValueError: A value is out of its range.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    stride: int | float
    meaning: str

    def __post_init__(self) -> None:
        _check_text("output name", self.name)
        what = f"output {self.name!r}"
        object.__setattr__(self, "shape", int_tuple(f"{what} shape", self.shape))
        _check_text(f"{what} dtype", self.dtype)
        check_choice(f"{what} kind", self.kind, OUTPUT_KINDS)
        if finite_float(f"{what} stride", self.stride) <= 0:
            raise ValueError(f"{what} stride is {self.stride}; expected a number above 0")
        if not isinstance(self.meaning, str):
            raise ValueError(f"{what} meaning is {self.meaning!r}; expected a string")


@dataclass(frozen=True)
class FileSpec:
    """One model file of a bundle.

    Attributes:
        sha256: 64 lower-case hex digits.
        bytes: Size of the file.
        precision: 'fp32', 'fp16' or 'int8'.
        target: The runtime it was made for, or 'any'.
        external_data: Names of the weight files that belong to it. Each is listed in the manifest's `files` too.
        layers: Precision that the file asks for to the nodes that multiply in it, each with its multiplications for
            one image; empty where that was not recorded.

    Raises:
        ValueError: A value is out of its range.
    """

    sha256: str
    bytes: int
    precision: str
    target: str
    external_data: tuple[str, ...] = ()
    layers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.sha256, str) or not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ValueError(f"file sha256 is {self.sha256!r}; expected 64 lower-case hex digits")
        if isinstance(self.bytes, bool) or not isinstance(self.bytes, int) or self.bytes < 1:
            raise ValueError(f"file bytes is {self.bytes!r}; expected a positive size")
        check_choice("file precision", self.precision, PRECISIONS)
        check_choice("file target", self.target, TARGETS)
        if isinstance(self.external_data, str):
            raise ValueError(f"file external_data is {self.external_data!r}; expected a list of file names")
        for name in self.external_data:
            check_file_name("file external_data", name)
        object.__setattr__(self, "external_data", tuple(self.external_data))
        self._check_layers()

    def _check_layers(self) -> None:
        if not isinstance(self.layers, dict):
            raise ValueError(f"file layers is {self.layers!r}; expected an object")
        for precision, nodes in self.layers.items():
            check_choice("precision in file layers", precision, PRECISIONS)
            whole = isinstance(nodes, dict) and all(
                isinstance(count, int) and not isinstance(count, bool) and count >= 0 for count in nodes.values()
            )
            if not whole:
                raise ValueError(f"file layers of {precision} is {nodes!r}; expected counts by name of the node")
