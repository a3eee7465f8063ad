"""Times of calls, measured so that they can be compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from deploy.runtimes import Runtime


@dataclass(frozen=True)
class Latency:
    """Times of one thing measured repeatedly.

    Attributes:
        samples_ms: In the order taken; samples of equal index in one `measure` were taken next to each other.
    """

    samples_ms: tuple[float, ...]

    @property
    def p50_ms(self) -> float:
        """The median."""
        return float(np.percentile(self.samples_ms, 50))

    @property
    def p95_ms(self) -> float:
        """The time that 95 % of the calls stay below."""
        return float(np.percentile(self.samples_ms, 95))

    @property
    def p99_ms(self) -> float:
        """The time that 99 % of the calls stay below."""
        return float(np.percentile(self.samples_ms, 99))

    @property
    def mean_ms(self) -> float:
        """The mean."""
        return float(np.mean(self.samples_ms))

    @property
    def images_per_s(self) -> float:
        """Images per second of one call after another, at a batch of 1."""
        return 1e3 / self.mean_ms

    def to_dict(self) -> dict[str, float]:
        """Return the summary, rounded to microseconds."""
        names = ("p50_ms", "p95_ms", "p99_ms", "mean_ms", "images_per_s")
        return {name: round(getattr(self, name), 3) for name in names}


def measure_calls(calls: Sequence[Callable[[], object]], warmup: int, iterations: int) -> list[Latency]:
    """Time several calls interleaved: one of each per iteration, so that a drifting clock or load meets them all alike.

    Args:
        calls: What to time.
        warmup: Untimed iterations before.
        iterations: Timed iterations, 1 or more. Each starts with another call, so that none always follows the same.

    Returns:
        A latency for each call.

    Raises:
        ValueError: A count is out of range.
    """
    if warmup < 0 or iterations < 1:
        raise ValueError(f"warmup is {warmup}, iterations {iterations}; expected at least 0 and 1")
    samples: list[list[float]] = [[] for _ in calls]
    for iteration in range(-warmup, iterations):
        for offset in range(len(calls)):
            index = (iteration + offset) % len(calls)
            start = time.perf_counter()
            calls[index]()
            elapsed = (time.perf_counter() - start) * 1e3
            if iteration >= 0:
                samples[index].append(elapsed)
    return [Latency(tuple(values)) for values in samples]


def measure(runtimes: Sequence[Runtime], tensor: npt.NDArray[Any], warmup: int, iterations: int) -> list[Latency]:
    """Time the models alone, interleaved, on one input tensor; see `measure_calls`."""
    return measure_calls([partial(runtime, tensor) for runtime in runtimes], warmup, iterations)


def paired_ratio(first: Latency, second: Latency) -> float:
    """Return the median over iterations of first / second: above 1, the second is faster."""
    return float(np.median(np.divide(first.samples_ms, second.samples_ms)))
