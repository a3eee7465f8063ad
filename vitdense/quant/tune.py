"""Which layers a model cannot spare in float: measured one by one, and given back until the score is met."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from deploy.files import write_json
from deploy.predictor import Prediction, Predictor

from ..errors import ParityError
from ..evaluation import LABELS, Score, evaluate, largest_drop
from ..evaluation.disagreement import disagreement
from ..evaluation.evaluate import Data
from .units import Unit, pin, quantized_units

_STRENGTHS = (0.3, 0.5, 0.7, 0.9)  # of SmoothQuant
_RANKED_ON = 6  # images; the units differ by factors, not by percents
_MARGIN = 0.5  # of the allowed drop: the images that verify it are others
_VERSION = 1  # of the figures that are kept: to be raised when they are measured in another way
Load = Callable[[onnx.ModelProto], Predictor]
Progress = Callable[[Sequence[Any], str], Iterator[Any]]


@dataclass(frozen=True)
class Step:
    """A number of pinned units that was tried.

    Args:
        pinned: Units in float.
        measure: The main measure that fell most.
        drop: By how many points of 100.
    """

    pinned: int
    measure: str
    drop: float


@dataclass(frozen=True)
class Tuning:
    """What tuning found.

    Args:
        sensitivity: Unit to the share of the predictions that changes when it alone is rounded.
        pinned: Units that stay in float, the first chosen first.
        steps: What was tried, in the order of trial.
    """

    sensitivity: dict[str, float]
    pinned: tuple[str, ...]
    steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "pinned": list(self.pinned), "steps": [asdict(step) for step in self.steps]}


class Memory:
    """What was measured, kept in a file, so that a tuning that was interrupted goes on where it was.

    Args:
        path: The file; one of another tuning is started anew.
        key: Tells tunings apart: everything that the figures depend on.
    """

    def __init__(self, path: Path, key: dict[str, Any]) -> None:
        self.path = path
        key = {**key, "version": _VERSION}
        self._content: dict[str, Any] = {"key": key, "values": {}}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["key"] == key and isinstance(found["values"], dict):
                self._content = found
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none yet, or damaged: measured again

    def __len__(self) -> int:
        return len(self._content["values"])

    def recall(self, name: str, measure: Callable[[], Any]) -> Any:
        """The value of that name; measured and written down if it is not known."""
        values = self._content["values"]
        if name not in values:
            values[name] = measure()
            write_json(self.path, self._content)
        return values[name]


def search_strength(
    quantize: Callable[[float], onnx.ModelProto],
    usual: float,
    source: onnx.ModelProto,
    load: Load,
    data: Data,
    memory: Memory,
    say: Callable[[str], None],
) -> tuple[float, dict[str, float]]:
    """Searches the strength of SmoothQuant that changes the predictions of a few images least.

    Args:
        quantize: Quantizes the model with a strength.
        usual: The recipe's, which is kept unless another is better.
        source: The float model.
        load: Loads a variant of it.
        data: Images.
        memory: Of what was measured before.
        say: Is told each result.

    Returns:
        The strength, and for each that was tried the share of the predictions that changed.
    """
    changed = _Change(source, load, data)
    strengths = [*(strength for strength in _STRENGTHS if strength != usual), usual]
    shares = {}
    for strength in strengths:
        share = memory.recall(f"strength {strength:g}", lambda: changed(quantize(strength)))  # noqa: B023
        shares[f"{strength:g}"] = share
        say(f"SmoothQuant {strength:g}: {share:.2%} of the predictions changed")
    return min(strengths, key=lambda strength: (shares[f"{strength:g}"], strength != usual)), shares


def tune(
    source: onnx.ModelProto,
    quantized: onnx.ModelProto,
    load: Load,
    data: Data,
    max_drop: float,
    memory: Memory,
    say: Callable[[str], None],
    progress: Progress,
) -> tuple[onnx.ModelProto, Tuning]:
    """Gives the most sensitive units of a quantized model back their float precision until its score is met.

    Each unit is rounded alone, everything else in float, and what changes in the predictions of a few images is its
    sensitivity. Units are then ranked by sensitivity per multiplication, and the first of them are pinned, as few as
    bisection finds, so that the score on labelled images falls by no more than half of what is allowed.

    Args:
        source: The float model.
        quantized: Made from it, with Q/DQ nodes.
        load: Loads a variant of it.
        data: Labelled images.
        max_drop: Most that a main measure may fall, in points of 100.
        memory: Of what was measured before.
        say: Is told each step.
        progress: Wraps an iteration, with what it does.

    Returns:
        The quantized model with some units in float, and how it came to be.

    Raises:
        ParityError: Pinning all units but the last does not meet it.
        ValueError: The images have no score.
    """
    units = quantized_units(quantized, source)
    sensitivity = _measure_sensitivity(quantized, source, units, load, data, memory, progress)
    ranked = sorted(units, key=lambda unit: sensitivity[unit.name] / max(unit.products, 1), reverse=True)
    before = _score("float", source, load, data, memory, progress, "Scoring in float")
    if any(value != value for value in before.values.values()):
        raise ValueError(f"the {before.images} tuning images have no labelled objects; tune on more (--tune-images)")
    say(f"Float on the {before.images} tuning images: {_in_words(before)}")
    steps: list[Step] = []

    def drop_with(count: int) -> float:
        model = pin(quantized, source, ranked[:count])
        label = f"Scoring with {count} of {len(units)} units in float"
        after = _score(f"pinned {count}", model, load, data, memory, progress, label)
        measure, drop = largest_drop(before, after)
        steps.append(Step(count, measure, round(drop, 4)))
        say(f"{count} of {len(units)} units in float: {LABELS[measure]} {-drop:+.2f} points")
        return drop

    count = _fewest(len(units), lambda number: drop_with(number) <= max_drop * _MARGIN)
    if count is None:
        raise ParityError(
            f"with all but the last of {len(units)} units in float the tuning images still lose {steps[-1].drop:.2f} "
            f"points; half of --max-drop, {max_drop * _MARGIN:.2f}, is the aim there. The bundle is unchanged"
        )
    pinned = ranked[:count]
    return pin(quantized, source, pinned), Tuning(sensitivity, tuple(unit.name for unit in pinned), tuple(steps))


def _measure_sensitivity(
    quantized: onnx.ModelProto,
    source: onnx.ModelProto,
    units: Sequence[Unit],
    load: Load,
    data: Data,
    memory: Memory,
    progress: Progress,
) -> dict[str, float]:
    changed = _Change(source, load, data)
    shares = {}
    for unit in progress(units, "Rounding one unit at a time"):
        others = [other for other in units if other is not unit]
        shares[unit.name] = memory.recall(f"alone {unit.name}", lambda: changed(pin(quantized, source, others)))  # noqa: B023
    return shares


class _Change:
    """Share of the float model's predictions on a few images that a variant changes."""

    def __init__(self, source: onnx.ModelProto, load: Load, data: Data) -> None:
        paths = data.paths()
        self._paths = paths[:: max(len(paths) // _RANKED_ON, 1)][:_RANKED_ON]
        self._source, self._load = source, load
        self._expected: list[Prediction] = []

    def __call__(self, model: onnx.ModelProto) -> float:
        if not self._expected:
            self._expected = self._predict(self._source)
        return disagreement(self._expected, self._predict(model))

    def _predict(self, model: onnx.ModelProto) -> list[Prediction]:
        predictor = self._load(model)
        return [predictor.predict(path) for path in self._paths]


def _fewest(most: int, meets: Callable[[int], bool]) -> int | None:
    """A number from 0 to ``most`` - 1 that meets a condition while one less does not; None if none was found."""
    if meets(0):
        return 0
    below, above = 0, most  # with everything in float nothing is lost, and nothing is quantized
    while above - below > 1:
        middle = (below + above) // 2
        if meets(middle):
            above = middle
        else:
            below = middle
    return above if above < most else None


def _score(
    name: str, model: onnx.ModelProto, load: Load, data: Data, memory: Memory, progress: Progress, label: str
) -> Score:
    def measure() -> dict[str, float]:
        scores, _ = evaluate([load(model)], data, lambda items: progress(items, label))
        return scores[0].values

    return Score(memory.recall(name, measure), {}, "", len(data.paths()))


def _in_words(score: Score) -> str:
    return ", ".join(f"{LABELS[name]} {value:.2f}" for name, value in score.values.items())
