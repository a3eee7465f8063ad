"""Plain text tables for a terminal on a device."""

from collections.abc import Collection, Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Align columns with spaces, a line of dashes under the header.

    Args:
        header: One title per column.
        rows: One text per column each.
        right: Indices of the columns to align on the right.

    Returns:
        The lines, joined, without a final newline.
    """
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    cells.insert(1, ["-" * width for width in widths])
    lines = [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)
