"""Tables and figures for people: of a receipt, of recipes that were compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from deploy.files import atomic_write

from .evaluation import AGREEMENTS, LABELS, MAIN_MEASURES
from .quant import TARGETS

if TYPE_CHECKING:
    from .engine.compare import Result


def receipt_table(receipt: dict[str, Any], target: str) -> Table:
    """One row per figure of a quantized bundle's receipt; what was not measured says so.

    Args:
        receipt: Content of ``receipt.json`` after quantization.
        target: 'openvino' or 'tensorrt'.
    """
    measured, files = receipt["targets"][target], TARGETS[target].files
    accuracy, latency, agreement = (measured[key] for key in ("accuracy", "latency", "agreement"))
    columns = ["fp32", *(file.precision for file in files[: TARGETS[target].scored])]
    table = Table(title=f"What INT8 costs, {target}")
    for column in ("", *(name.upper() for name in columns), ""):
        table.add_column(column, justify="right" if column else "left")
    blank = [""] * (len(columns) - 2)
    if accuracy:
        for name in (name for name in LABELS if name in accuracy["fp32"]):
            values = [accuracy[column][name] for column in columns]
            note = f"{values[1] - values[0]:+.2f} points"
            note += f", {accuracy['fp32']['images']} images" if name in MAIN_MEASURES else ""
            table.add_row(LABELS[name], *(f"{value:.2f}" for value in values), note)
    else:
        table.add_row("accuracy", *["not measured"] * len(columns), "give --eval CONFIG")
    for name in AGREEMENTS:
        if agreement and name in agreement:
            where = f"{agreement['images']} images: {agreement['on']}"
            table.add_row(AGREEMENTS[name], "", f"{agreement[name]:.2%}", *blank, where)
    tuning, note = measured["tuning"], "of multiplications"
    if tuning:
        note += f"; tuning left {len(tuning['pinned'])} of {len(tuning['sensitivity'])} units in float"
    table.add_row("in INT8", "", f"{measured['int8_share']:.1%}", *blank, note)
    clipped = measured["saturation"]
    if clipped and clipped["worst"]:
        note = f"most at {clipped['worst']['unit']}: {clipped['worst']['share']:.2%}"
        table.add_row("values clipped", "", f"{clipped['others']:.3%}", *blank, note)
    if latency:
        note = f"{latency['speedup']:.2f}x, {latency['fp32']['threads']} threads, {latency['cpu']}"
        table.add_row("latency p50, ms", f"{latency['fp32']['p50_ms']:.0f}", f"{latency['int8']['p50_ms']:.0f}", note)
    else:
        table.add_row("latency p50, ms", *["not measured"] * len(columns), "measure it on the device")
    sizes = [receipt["size_bytes"][name] / 1e6 for name in ("model.onnx", *(f.name for f in files[: len(columns) - 1]))]
    note = f"{sizes[0] / sizes[1]:.2f}x smaller"
    table.add_row("file, MB", *(f"{size:.1f}" for size in sizes), note)
    return table


def sensitivity_figure(receipt: dict[str, Any], target: str, path: Path) -> None:
    """Draws what rounding each unit alone changes as a PNG: a bar per unit, those left in float in another colour.

    Args:
        receipt: Content of ``receipt.json`` after a quantization with tuning.
        target: 'openvino' or 'tensorrt'.
        path: The PNG file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    measured = receipt["targets"][target]
    tuning = measured["tuning"]
    names = list(tuning["sensitivity"])
    shares = [100 * tuning["sensitivity"][name] for name in names]
    colours = ["tab:orange" if name in tuning["pinned"] else "tab:blue" for name in names]
    figure = Figure(figsize=(8, 1.6 + 0.19 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.barh(range(len(names)), shares, color=colours, height=0.7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()  # the image enters at the top
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set(xlabel="percent of the predictions that change when the unit alone is rounded to INT8")
    axes.set_title(f"Sensitivity, {target}: {measured['int8_share']:.1%} of multiplications in INT8", loc="left")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(
        handles=[Patch(color="tab:blue", label="INT8"), Patch(color="tab:orange", label="left in float")], frameon=False
    )
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")


def recipe_table(results: Sequence[Result], title: str) -> Table:
    """One row per recipe that was trained.

    Args:
        results: Of :func:`vitdense.engine.compare.train`.
        title: Above the table.
    """
    table = Table(title=title)
    for column in ("recipe", "images", "minutes", results[0].metric):
        table.add_column(column, justify="left" if column == "recipe" else "right")
    for row in results:
        table.add_row(row.finetune, str(row.images), f"{row.seconds / 60:.1f}", f"{row.score:.2f}")
    return table


def recipe_figure(results: Sequence[Result], title: str, path: Path) -> None:
    """Draws score over time as a PNG: a line per recipe, a point per number of images.

    Args:
        results: Of :func:`vitdense.engine.compare.train`.
        title: Above the figure.
        path: The PNG file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for mode in dict.fromkeys(row.finetune for row in results):
        points = sorted((row for row in results if row.finetune == mode), key=lambda row: row.images)
        minutes, scores = [point.seconds / 60 for point in points], [point.score for point in points]
        axes.plot(minutes, scores, "o-", label=mode, linewidth=1.5, markersize=7)
        for point, x, y in zip(points, minutes, scores, strict=True):
            place = (0, 8) if point is points[-1] else (0, -16)  # lines rise: their ends stay free
            text = f"{point.images} images"
            axes.annotate(text, (x, y), xytext=place, textcoords="offset points", fontsize=8, ha="center")
    axes.set(xlabel="minutes of training", ylabel=f"{results[0].metric} (percent)", title=title)
    axes.margins(x=0.15, y=0.12)
    axes.grid(alpha=0.3)
    axes.legend(title="recipe", frameon=False)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=130, format="png")
