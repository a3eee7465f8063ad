"""Tables of a receipt for people."""

from __future__ import annotations

from typing import Any

from rich.table import Table


def receipt_table(receipt: dict[str, Any], title: str = "FP32 and INT8") -> Table:
    """One row per figure of a quantized bundle's receipt; what was not measured says so.

    Args:
        receipt: Content of ``receipt.json`` after quantization.
        title: Above the table.
    """
    table = Table(title=title)
    for column, justify in (("", "left"), ("FP32", "right"), ("INT8", "right"), ("", "left")):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    accuracy, latency, agreement = (receipt.get(key) for key in ("accuracy", "latency", "agreement"))
    if accuracy:
        fp32, int8 = accuracy["fp32"], accuracy["int8"]
        note = f"{-accuracy['drop_points']:+.2f} points, {fp32['images']} images"
        table.add_row("mIoU", f"{fp32['miou']:.2f}", f"{int8['miou']:.2f}", note)
        table.add_row("pixel accuracy", f"{fp32['pixel_accuracy']:.2f}", f"{int8['pixel_accuracy']:.2f}", "")
    else:
        table.add_row("mIoU", "not measured", "not measured", "give --eval CONFIG")
    if agreement:
        table.add_row(
            "equal pixels", "", f"{agreement['pixels_equal']:.2%}", f"{agreement['images']} images: {agreement['on']}"
        )
    if latency:
        threads = latency["fp32"]["threads"]
        note = f"{latency['speedup']:.2f}x, {threads} threads, {latency['cpu']}"
        table.add_row("latency p50, ms", f"{latency['fp32']['p50_ms']:.0f}", f"{latency['int8']['p50_ms']:.0f}", note)
    sizes = receipt["size_bytes"]
    fp32_size = sizes["model.onnx"] / 1e6
    int8_size = sizes["model.openvino-int8.onnx"] / 1e6
    table.add_row("file, MB", f"{fp32_size:.1f}", f"{int8_size:.1f}", f"{fp32_size / int8_size:.2f}x smaller")
    return table
