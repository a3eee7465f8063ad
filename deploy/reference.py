"""The reference of a bundle, `reference.npz`: inputs, and what each model file made of them on the workstation."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deploy.detections import agreement_share, common_counts, match, read_detections
from deploy.files import write_npz
from deploy.preprocess import Geometry
from deploy.runtimes.base import Runtime
from deploy.specs import OutputSpec

REFERENCE_NAME = "reference.npz"
_MASK_IOU = 0.9  # masks of objects that match, on another device
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Reference:
    """What `reference.npz` holds.

    Attributes:
        inputs: Tensors as they were fed, (N, 3, H, W) each.
        outputs: Model file to output name to one array for each input.
        tolerances: Model file to the relative error up to which a device passes.

    Raises:
        ValueError: There is no input, or a file lacks a tolerance or an output.
    """

    inputs: tuple[Array, ...]
    outputs: dict[str, dict[str, tuple[Array, ...]]]
    tolerances: dict[str, float]

    def __post_init__(self) -> None:
        if not self.inputs:
            raise ValueError("the reference holds no input")
        if set(self.outputs) != set(self.tolerances):
            raise ValueError(
                f"the reference has outputs of {sorted(self.outputs)} but tolerances for {sorted(self.tolerances)}"
            )
        for filename, outputs in self.outputs.items():
            for name, arrays in outputs.items():
                if len(arrays) != len(self.inputs):
                    raise ValueError(
                        f"the reference has {len(arrays)} arrays of {filename}'s output {name!r} "
                        f"for {len(self.inputs)} inputs"
                    )


@dataclass(frozen=True)
class ReferenceCheck:
    """How a device compares with the workstation.

    Attributes:
        filename: The model file.
        error: The largest max|a - b| / max|b| over inputs and outputs, b being the workstation's; of a detector, whose
            objects may come in another order, the largest share of objects that do not match.
        output: The name of the output that has it; 'objects' of a detector.
        tolerance: The largest error that passes.
    """

    filename: str
    error: float
    output: str
    tolerance: float

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance; NaN is not."""
        return self.error <= self.tolerance


def relative_error(value: Array, expected: Array) -> float:
    """Return max|value - expected| / max|expected|; infinity if the shapes differ, NaN if a value is NaN."""
    if value.shape != expected.shape:
        return float("inf")
    difference = float(np.max(np.abs(value.astype(np.float64) - expected.astype(np.float64))))
    scale = float(np.max(np.abs(expected.astype(np.float64))))
    if scale == 0:
        return 0.0 if difference == 0 else float("inf")
    return difference / scale


def check_reference(
    runtime: Runtime, reference: Reference, filename: str, specs: Sequence[OutputSpec] = ()
) -> ReferenceCheck:
    """Run the reference's inputs and compare.

    Args:
        runtime: `filename`, loaded on this device.
        reference: From `load_reference`.
        filename: The model file whose outputs to compare with.
        specs: The manifest's outputs; those of a detector are compared as objects.

    Raises:
        ValueError: The reference knows no such file or output.
    """
    if filename not in reference.outputs:
        raise ValueError(f"the reference has no outputs of {filename}; it has {sorted(reference.outputs)}")
    worst = (-1.0, "")
    detector = any(spec.kind == "boxes" for spec in specs)
    for index, tensor in enumerate(reference.inputs):
        found = runtime(tensor)
        if detector:
            expected_outputs = {name: values[index] for name, values in reference.outputs[filename].items()}
            error = _unmatched(found, expected_outputs, specs, (tensor.shape[2], tensor.shape[3]))
            worst = max(worst, (error, "objects"))
            continue
        for name, expected in reference.outputs[filename].items():
            if name not in found:
                raise ValueError(f"the reference has an output {name!r} of {filename}; the model has {sorted(found)}")
            error = relative_error(found[name], expected[index])
            if not error <= worst[0]:  # so that NaN counts as worse than any number, and stays
                worst = (error, name)
            if np.isnan(error):
                return ReferenceCheck(filename, error, name, reference.tolerances[filename])
    return ReferenceCheck(filename, worst[0], worst[1], reference.tolerances[filename])


def _unmatched(
    found: Mapping[str, Array], expected: Mapping[str, Array], specs: Sequence[OutputSpec], size: tuple[int, int]
) -> float:
    whole = Geometry(size, size)
    first, second = (read_detections(outputs, specs, whole, 0.25) for outputs in (expected, found))
    masks = match(first, second, iou=0.7, score_tolerance=0.1).lowest_mask_iou
    return 1 - min(agreement_share(common_counts(first, second)), 1.0 if masks >= _MASK_IOU else masks)


def save_reference(bundle_dir: str | os.PathLike[str], reference: Reference) -> None:
    """Write `reference.npz` into a bundle's folder, atomically.

    The arrays are named `input_<i>`, `<file>/<output>/<i>` and `tolerance/<file>`.

    Raises:
        FileNotFoundError: There is no such folder.
    """
    arrays: dict[str, Array] = {f"input_{index}": tensor for index, tensor in enumerate(reference.inputs)}
    for filename, outputs in reference.outputs.items():
        arrays[f"tolerance/{filename}"] = np.array(reference.tolerances[filename], dtype=np.float64)
        for name, values in outputs.items():
            arrays |= {f"{filename}/{name}/{index}": value for index, value in enumerate(values)}
    write_npz(Path(bundle_dir) / REFERENCE_NAME, arrays)


def load_reference(bundle_dir: str | os.PathLike[str]) -> Reference:
    """Read the reference of a bundle.

    Raises:
        FileNotFoundError: The bundle has none.
        ValueError: The file is damaged, or its arrays are not the ones `save_reference` writes.
    """
    path = Path(bundle_dir) / REFERENCE_NAME
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}; export the bundle again to have one")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
        return _from_arrays(arrays)
    except Exception as error:  # zipfile, zlib, numpy and key errors, all of which mean a damaged or foreign file
        raise ValueError(f"{path} is not a bundle's reference ({error}); copy or export the bundle again") from error


def _from_arrays(arrays: dict[str, Array]) -> Reference:
    inputs: dict[int, Array] = {}
    tolerances: dict[str, float] = {}
    outputs: dict[str, dict[str, dict[int, Array]]] = {}
    for key, array in arrays.items():
        head, _, rest = key.partition("/")
        if not rest:
            inputs[int(key.removeprefix("input_"))] = array
        elif head == "tolerance":
            tolerances[rest] = float(array)
        else:
            name, _, index = rest.rpartition("/")  # the output's own name may hold slashes
            outputs.setdefault(head, {}).setdefault(name, {})[int(index)] = array
    return Reference(
        tuple(inputs[index] for index in range(len(inputs))),
        {
            filename: {name: tuple(values[index] for index in range(len(values))) for name, values in named.items()}
            for filename, named in outputs.items()
        },
        tolerances,
    )
