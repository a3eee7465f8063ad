"""What every runtime has in common: its interface and the checks of a model file against the manifest."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from deploy.specs import InputSpec, OutputSpec

Array = npt.NDArray[Any]


class Runtime(Protocol):
    """A loaded model: a call takes the input tensor and returns every output of the manifest by name."""

    @property
    def name(self) -> str:
        """The name `create_runtime` knows it by."""

    def __call__(self, tensor: Array) -> dict[str, Array]:
        """Run the model once.

        Args:
            tensor: (N, 3, H, W) with the shape and dtype of the manifest's input.

        Returns:
            Output name to an array that the next call does not overwrite.

        Raises:
            ValueError: The tensor's shape or dtype is not the manifest's.
        """

    def describe(self) -> dict[str, Any]:
        """Return what a measurement has to state: runtime, version, device, threads, precision of execution."""


class Port(NamedTuple):
    """An input or output as the model file declares it; a dimension that is not static is None."""

    names: frozenset[str]
    shape: tuple[int | None, ...]
    dtype: str


def check_ports(
    model: str,
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    input_spec: InputSpec,
    output_specs: Sequence[OutputSpec],
) -> None:
    """Compare what a model file declares with what the manifest says.

    Args:
        model: The file, for the message.
        inputs: All inputs of the file.
        outputs: All outputs of the file; those the manifest does not mention are ignored.
        input_spec: The manifest's input, the only one the model may have.
        output_specs: The manifest's outputs.

    Raises:
        ValueError: A name, shape or dtype differs.
    """
    if len(inputs) != 1:
        names = sorted(name for port in inputs for name in port.names)
        raise ValueError(f"{model} has {len(inputs)} inputs {names}; expected one image input, {input_spec.name!r}")
    pairs: list[tuple[str, str, Sequence[Port], InputSpec | OutputSpec]] = [
        ("input", input_spec.name, inputs, input_spec)
    ]
    pairs += [("output", spec.name, outputs, spec) for spec in output_specs]
    for what, name, ports, spec in pairs:
        port = next((port for port in ports if name in port.names), None)
        if port is None:
            names = sorted(name for port in ports for name in port.names)
            raise ValueError(f"{model} has no {what} {name!r} as the manifest says; it has {names}: export it again")
        if port.shape != spec.shape or port.dtype != spec.dtype:
            raise ValueError(
                f"{model}: {what} {name!r} is {port.dtype} {list(port.shape)}, but the manifest says "
                f"{spec.dtype} {list(spec.shape)}; export the bundle again"
            )


def check_tensor(tensor: Array, spec: InputSpec) -> None:
    """Check an input tensor before it reaches a runtime.

    Raises:
        ValueError: Its shape or dtype is not the manifest's.
    """
    if tensor.shape != spec.shape or tensor.dtype != np.dtype(spec.dtype):
        raise ValueError(
            f"input {spec.name!r} got {tensor.dtype} {list(tensor.shape)}; expected {spec.dtype} {list(spec.shape)}, "
            "which is what deploy.preprocess.Preprocessor makes of an image"
        )


def check_threads(threads: int) -> int:
    """Return `threads` if it is a positive integer, else raise a `ValueError`."""
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ValueError(f"threads is {threads!r}; expected an integer of 1 or more")
    return threads
