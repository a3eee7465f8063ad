"""One picture of what the tokens of a ViT do on an image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from deploy.files import atomic_write

from .cost import BlockCost
from .tokens import TokenRecord, attention_rollout, find_outliers

CAUTION = (
    "What this does not prove: attention says where a block reads, not what moved the output; rollout ignores values, "
    "MLPs and the sign of what is added;\na long token is a symptom (arXiv:2309.16588), not a measured loss; FLOPs are "
    "not milliseconds."
)


def draw_sheet(
    path: str | Path,
    image: npt.NDArray[np.uint8],
    record: TokenRecord,
    costs: list[BlockCost],
    place: tuple[int, int],
    similarity: torch.Tensor | None,
    title: str,
) -> None:
    """Draws the sheet to a PNG file, atomically.

    Args:
        path: The file.
        image: (H, W, 3) RGB, as the model saw it.
        record: Attention of every block, and norms.
        costs: Of every block.
        place: Row and column of the patch whose attention is shown.
        similarity: Of that patch's position embedding with all others, (H, W); None where there is none.
        title: First line.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = 6
    figure, axes = pyplot.subplots(5, columns, figsize=(3 * columns, 15.5), layout="constrained")
    figure.suptitle(title, fontsize=14)
    token = record.num_prefix + place[0] * record.grid[1] + place[1]
    depth = len(costs)
    shown = sorted({round(i) for i in np.linspace(0, depth - 1, columns - 1)})

    _show(axes[0, 0], image, f"image, patch at row {place[0]}, column {place[1]}")
    _mark(axes[0, 0], image, record.grid, place)
    for axis, block in zip(axes[0, 1:], shown, strict=False):
        kind = "window" if costs[block].windowed else "global"
        _heat(axis, record.of_token(block, token).mean(0), f"its attention, block {block} ({kind})")
    heads = record.attention[-1].shape[0]
    for axis, (head, weights) in zip(axes[1], enumerate(record.of_token(depth - 1, token)), strict=False):
        _heat(axis, weights, f"last block, head {head} of {heads}")
    rollout = attention_rollout(record)
    _heat(axes[2, 0], rollout[token, record.num_prefix :].unflatten(0, record.grid), "rollout of the patch")
    if record.num_prefix:
        _heat(
            axes[2, 1], rollout[0, record.num_prefix :].unflatten(0, record.grid), "rollout of the first prefix token"
        )
    if similarity is not None:
        _heat(axes[2, 2], similarity, "similarity of its position", limits=(-1, 1), colours="coolwarm")
    for axis, block in zip(axes[3], sorted({round(i) for i in np.linspace(0, depth - 1, columns)}), strict=False):
        norms, outliers = record.norm_map(block), find_outliers(record, block)
        _heat(axis, norms, f"norms, block {block}: {int(outliers.sum())} above 3x")
        rows, cols = outliers.nonzero(as_tuple=True)
        axis.scatter(cols, rows, s=40, facecolors="none", edgecolors="red")
    _norm_curves(axes[4, 0], record)
    _cost_bars(axes[4, 1], axes[4, 2], costs)
    for axis in axes.ravel():
        if not axis.has_data():
            axis.set_axis_off()
    figure.text(0.5, -0.01, CAUTION, ha="center", va="top", fontsize=10)
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="png", dpi=70, bbox_inches="tight")
    pyplot.close(figure)


def _show(axis: Any, image: npt.NDArray[Any], title: str) -> None:
    axis.imshow(image)
    axis.set_title(title, fontsize=10)
    axis.set_xticks([])
    axis.set_yticks([])


def _mark(axis: Any, image: npt.NDArray[Any], grid: tuple[int, int], place: tuple[int, int]) -> None:
    from matplotlib.patches import Rectangle

    height, width = image.shape[0] / grid[0], image.shape[1] / grid[1]
    corner = (place[1] * width, place[0] * height)
    axis.add_patch(Rectangle(corner, width, height, fill=False, edgecolor="red", linewidth=2))


def _heat(
    axis: Any,
    values: torch.Tensor,
    title: str,
    limits: tuple[float | None, float | None] = (0, None),
    colours: str = "viridis",
) -> None:
    shown = axis.imshow(values.numpy(), vmin=limits[0], vmax=limits[1], cmap=colours)
    low, high = shown.get_clim()
    axis.set_title(f"{title}\ncolours from {low:.2g} to {high:.2g}", fontsize=10)
    axis.set_xticks([])
    axis.set_yticks([])


def _norm_curves(axis: Any, record: TokenRecord) -> None:
    norms = record.norms[:, record.num_prefix :]
    axis.plot(norms.median(dim=1).values, label="median")
    axis.plot(norms.max(dim=1).values, label="longest")
    if record.num_prefix:
        axis.plot(record.norms[:, 0], label="first prefix token", linestyle=":")
    axis.set_yscale("log")
    axis.set_title("length of tokens after each block", fontsize=10)
    _blocks_axis(axis)
    axis.legend(fontsize=8)


def _blocks_axis(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_xlabel("block")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _cost_bars(flops: Any, memory: Any, costs: list[BlockCost]) -> None:
    blocks = range(len(costs))
    projections, products, mlp = (
        np.array([getattr(cost, name) for cost in costs]) / 1e9 for name in ("projections", "products", "mlp")
    )
    flops.bar(blocks, projections, label="projections")
    flops.bar(blocks, products, bottom=projections, label="scores and values")
    flops.bar(blocks, mlp, bottom=projections + products, label="MLP")
    above = sum(cost.products > cost.mlp for cost in costs)
    flops.set_title(f"GFLOPs by block\n(scores and values above the MLP: {above} blocks)", fontsize=10)
    _blocks_axis(flops)
    flops.margins(y=0.4)  # room for the legend above the bars
    flops.legend(fontsize=8, loc="upper center", ncols=2)
    memory.bar(blocks, [cost.weight_bytes / 1e6 for cost in costs], label="weights")
    memory.bar(
        blocks,
        [cost.score_bytes / 1e6 for cost in costs],
        bottom=[cost.weight_bytes / 1e6 for cost in costs],
        label="scores, if stored",
    )
    memory.set_title("MB by block (FP32)", fontsize=10)
    _blocks_axis(memory)
    memory.margins(y=0.4)
    memory.legend(fontsize=8, loc="upper center")
