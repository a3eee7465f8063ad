"""Pictures for people: class maps and objects over images, legends, panels side by side. All images are BGR uint8."""

from collections.abc import Sequence

import cv2
import numpy as np
import numpy.typing as npt

from deploy.detections import Detections

Image = npt.NDArray[np.uint8]

PAPER = (252, 252, 252)
INK = (40, 40, 40)
FONT = cv2.FONT_HERSHEY_SIMPLEX
# OpenCV 5 draws this font from outlines, where a thickness is a weight; OpenCV 4 draws strokes, which must grow along.
_OUTLINE_FONT = hasattr(cv2, "FontFace")


def overlay(
    image: Image,
    class_map: npt.NDArray[np.integer],
    palette: Sequence[Sequence[int]],
    alpha: float = 0.55,
) -> Image:
    """Lay a class map's colours over an image, with a thin white line between regions.

    Args:
        image: (H, W, 3), BGR.
        class_map: (H, W) class indices; those without a colour (an ignore index of 255, say) stay as in the image.
        palette: One (R, G, B) per class.
        alpha: Weight of the colour, 0 to 1.

    Returns:
        A new image, (H, W, 3).

    Raises:
        ValueError: The sizes differ, or alpha is out of range.
    """
    if class_map.shape != image.shape[:2]:
        raise ValueError(f"the class map is {class_map.shape}, the image {image.shape[:2]}; expected equal (H, W)")
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; expected 0 to 1")
    colours = np.array(palette, dtype=np.uint8).reshape(-1, 3)[:, ::-1]
    known = (class_map >= 0) & (class_map < len(colours))
    painted = np.zeros_like(image)
    painted[known] = colours[class_map[known]]
    blended = np.asarray(cv2.addWeighted(image, 1 - alpha, painted, alpha, 0), dtype=np.uint8)
    blended[~known] = image[~known]
    return _draw_borders(blended, class_map)


def _draw_borders(image: Image, class_map: npt.NDArray[np.integer]) -> Image:
    """Blend a white line into the borders between classes: one pixel, or more with soft edges on large images."""
    border = np.zeros(class_map.shape, dtype=np.float32)
    border[:, :-1][class_map[:, 1:] != class_map[:, :-1]] = 1
    border[:-1][class_map[1:] != class_map[:-1]] = 1
    sigma = min(class_map.shape) / 1000
    if sigma > 0.7:
        # A blurred line of one pixel peaks at 1 / (sqrt(2 pi) sigma); bring it back to full white.
        border = np.asarray(cv2.GaussianBlur(border, (0, 0), sigma), dtype=np.float32)
        border = np.minimum(border * (3 * sigma), 1)
    weight = 0.8 * border[:, :, None]
    return np.asarray(image + (255 - image.astype(np.float32)) * weight + 0.5, dtype=np.uint8)


def draw_detections(
    image: Image, detections: Detections, classes: Sequence[str], palette: Sequence[Sequence[int]], alpha: float = 0.45
) -> Image:
    """Draw objects: their masks, if there are any, their boxes, and class and score in the box's upper left corner.

    Args:
        image: (H, W, 3), BGR.
        detections: In pixels of this image.
        classes: Class names by index.
        palette: One (R, G, B) per class.
        alpha: Weight of a mask's colour, 0 to 1.

    Returns:
        A new image, (H, W, 3).
    """
    canvas = np.array(image)
    unit = _unit(image.shape[1])
    line = max(1, round(unit / 9))
    order = range(len(detections))[::-1]  # the surest on top
    for index in order if detections.masks is not None else ():
        assert detections.masks is not None
        region = detections.masks[index]
        colour = np.array(palette[detections.labels[index]], dtype=np.float32)[::-1]
        canvas[region] = ((1 - alpha) * canvas[region] + alpha * colour + 0.5).astype(np.uint8)
    for index in order:
        red, green, blue = (int(value) for value in palette[detections.labels[index]])
        left, top, right, bottom = (round(float(value)) for value in detections.boxes[index])
        cv2.rectangle(canvas, (left, top), (right, bottom), (blue, green, red), line)
    for index in order:
        _put_tag(canvas, detections, index, classes, palette, unit)
    return canvas


def _put_tag(
    canvas: Image,
    detections: Detections,
    index: int,
    classes: Sequence[str],
    palette: Sequence[Sequence[int]],
    unit: int,
) -> None:
    label = int(detections.labels[index])
    red, green, blue = (int(value) for value in palette[label])
    text = f"{classes[label]} {detections.scores[index]:.2f}"
    size = max(10, round(0.7 * unit))
    left, top = (round(float(value)) for value in detections.boxes[index][:2])
    width = _text_width(text, size) + size // 2
    left = max(0, min(left, canvas.shape[1] - width))
    top = max(0, min(top, canvas.shape[0] - size))
    cv2.rectangle(canvas, (left, top), (left + width, top + size), (blue, green, red), cv2.FILLED)
    light = 0.299 * red + 0.587 * green + 0.114 * blue > 140
    _put_text(canvas, text, left + size // 4, top, size, INK if light else PAPER)


def add_legend(
    image: Image, classes: Sequence[str], palette: Sequence[Sequence[int]], present: Sequence[int] | None = None
) -> Image:
    """Add a legend below an image; where a name needs more room than the image is wide, the picture gets wider.

    Args:
        image: (H, W, 3), BGR.
        classes: Class names by index.
        palette: One (R, G, B) per class.
        present: Indices of the classes to show, in this order. Defaults to all.

    Returns:
        A new image, at least as high and wide.
    """
    shown = list(range(len(classes))) if present is None else [i for i in present if i < len(classes)]
    if not shown:
        return np.array(image)
    unit = _unit(image.shape[1])
    gap = unit // 2
    entry_width = max(_text_width(classes[index], unit) for index in shown) + unit + gap
    width = max(image.shape[1], entry_width + 2 * unit)
    columns = max(1, min(len(shown), (width - unit) // (entry_width + unit)))
    rows = -(-len(shown) // columns)
    line = unit + gap
    panel = np.full((rows * line + 2 * unit - gap, width, 3), PAPER, dtype=np.uint8)
    step = (width - unit) // columns
    for place, index in enumerate(shown):
        x, y = unit + (place % columns) * step, unit + (place // columns) * line
        red, green, blue = (int(value) for value in palette[index])
        cv2.rectangle(panel, (x, y), (x + unit, y + unit), (blue, green, red), cv2.FILLED)
        cv2.rectangle(panel, (x, y), (x + unit, y + unit), (110, 110, 110), max(1, unit // 20))
        _put_text(panel, classes[index], x + unit + gap, y, unit)
    return np.vstack([_pad_to_width(image, width), panel])


def side_by_side(panels: Sequence[Image], titles: Sequence[str]) -> Image:
    """Place images next to each other, each under its title, at the height of the first.

    Args:
        panels: Images, (H, W, 3), BGR.
        titles: One for each.

    Returns:
        One image on white.

    Raises:
        ValueError: There is no panel, or not a title for each.
    """
    if not panels or len(panels) != len(titles):
        raise ValueError(f"got {len(panels)} panels and {len(titles)} titles; expected one title for each of 1 or more")
    height = panels[0].shape[0]
    unit = _unit(max(panel.shape[1] for panel in panels))
    columns = []
    for panel, title in zip(panels, titles, strict=True):
        if panel.shape[0] != height:
            scaled = (max(1, round(panel.shape[1] * height / panel.shape[0])), height)
            panel = np.asarray(cv2.resize(panel, scaled, interpolation=cv2.INTER_AREA), dtype=np.uint8)
        width = max(panel.shape[1], _text_width(title, unit))
        bar = np.full((2 * unit, width, 3), PAPER, dtype=np.uint8)
        _put_text(bar, title, 0, unit // 2, unit)
        columns.append(np.vstack([bar, _pad_to_width(panel, width)]))
    gap = np.full((columns[0].shape[0], unit // 2, 3), PAPER, dtype=np.uint8)
    parts = [part for column in columns for part in (gap, column)] + [gap]
    joined = np.hstack(parts)
    return np.vstack([joined, np.full((unit // 2, joined.shape[1], 3), PAPER, dtype=np.uint8)])


def _unit(width: int) -> int:
    """Height of a line of text in pixels: readable at 14, and growing with images that are viewed reduced."""
    return max(14, round(width / 45))


def _font(unit: int) -> tuple[float, int]:
    """Scale and thickness at which a capital letter is about 0.7 units high."""
    (_, height), _ = cv2.getTextSize("H", FONT, 1.0, 1)
    scale = 0.7 * unit / height
    return scale, 1 if _OUTLINE_FONT else max(1, round(unit / 14))


def _text_width(text: str, unit: int) -> int:
    scale, thickness = _font(unit)
    return int(cv2.getTextSize(text, FONT, scale, thickness)[0][0])


def _put_text(canvas: Image, text: str, x: int, y: int, unit: int, colour: tuple[int, int, int] = INK) -> None:
    """Write `text` with its left edge at x, its capitals centred in the line of height `unit` that starts at y."""
    scale, thickness = _font(unit)
    baseline = y + round(0.85 * unit)
    cv2.putText(canvas, text, (x, baseline), FONT, scale, colour, thickness, cv2.LINE_AA)


def _pad_to_width(image: Image, width: int) -> Image:
    padded = np.full((image.shape[0], width, 3), PAPER, dtype=np.uint8)
    padded[:, : image.shape[1]] = image
    return padded
