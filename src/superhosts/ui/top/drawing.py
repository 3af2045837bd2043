"""Numbers as pictures made of characters: bars with their interval, a line of windows, the past of a host.

Each picture can be read without colours: what is certain is solid, what is only possible is shaded.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence

from rich.text import Text

from superhosts.ui.answers import Point

SOLID, SHADED = "█", "░"
EIGHTHS = " ▏▎▍▌▋▊▉"
LEVELS = "▁▂▃▄▅▆▇█"
BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a character, by row and column
BAR_STYLE, SHADE_STYLE, DIM, BOLD = "cyan", "cyan", "dim", "bold"
CHOSEN_STYLE = "bold underline"
WARNING = "bold red"
GAP = 2  # cells between two columns


def bar(low: int, most: int, *, is_exact: bool, largest: int, width: int) -> Text:
    """Return a bar of some cells: solid up to the lower end of an interval, shaded to its upper end."""
    if largest <= 0 or width <= 0:
        return Text(" " * max(width, 0))
    scale = width / largest
    if is_exact:
        cells = min(most * scale, width)
        whole = int(cells)
        part = EIGHTHS[int((cells - whole) * 8)] if whole < width else ""
        cell = SOLID * whole + part.strip() or EIGHTHS[1]
        return Text(cell.ljust(width), BAR_STYLE)
    solid = min(math.floor(low * scale), width - 1)
    shaded = max(min(math.ceil(most * scale), width) - solid, 1)
    drawn = Text().append(SOLID * solid, BAR_STYLE).append(SHADED * shaded, SHADE_STYLE)
    return drawn.append(" " * (width - solid - shaded))


def sparkline(values: Sequence[int], chosen: int | None) -> Text:
    largest = max(values, default=0)
    drawn = Text()
    for place, value in enumerate(values):
        level = LEVELS[min(int(value / largest * len(LEVELS)), len(LEVELS) - 1)] if largest else LEVELS[0]
        drawn.append(level, CHOSEN_STYLE if place == chosen else BAR_STYLE)
    return drawn


def chart(points: Sequence[Point], width: int, height: int) -> list[str]:
    """Return lines of braille characters: the interval of each point drawn over its time. Other times stay empty."""
    first, last = min(point["start"] for point in points), max(point["end"] for point in points)
    top = highest(points)
    columns, rows = 2 * width, 4 * height
    dots = [[0] * width for _ in range(height)]
    per_second = columns / max(last - first, 1e-9)
    for point in points:
        begin = min(round((point["start"] - first) * per_second), columns - 1)
        end = max(round((point["end"] - first) * per_second), begin + 1)
        upper = top if point["high"] is None else point["high"]  # saturated: it may be any number
        bottom_row, top_row = _row(point["low"], top, rows), _row(upper, top, rows)
        for column in range(begin, min(end, columns)):
            for row in range(top_row, bottom_row + 1):
                dots[row // 4][column // 2] |= DOTS[row % 4][column % 2]
    return ["".join(chr(BRAILLE + cell) for cell in line) for line in dots]


def highest(points: Sequence[Point]) -> int:
    return max(max(point["low"], point["high"] or 0) for point in points) or 1


def _row(value: int, top: int, rows: int) -> int:
    return min(max(rows - 1 - round(value / top * (rows - 1)), 0), rows - 1)


def cells_line(mark: Text, cells: Mapping[str, Text], widths: Mapping[str, int], numbers: Container[str]) -> Text:
    """Return a line of a table: a mark, and a cell for each column; those of numbers are aligned to the right."""
    for place, (name, width) in enumerate(widths.items()):
        cell = cells[name]
        cell.truncate(width, overflow="ellipsis")
        space = width - cell.cell_len
        if name in numbers:
            cell.pad_left(space)
        else:
            cell.pad_right(space)
        mark.append(" " * GAP if place else "").append_text(cell)
    return mark


def chosen_cell(text: str, is_chosen: bool) -> Text:
    """Return the first cell of a line, which is highlighted as a whole under the cursor."""
    return Text(text, "bold reverse") if is_chosen else Text().append(text, BOLD)


def cut(text: str, width: int) -> str:
    """Return text in at most so many cells; what is cut off shows as …."""
    if width <= 0:
        return ""
    whole = Text(text)
    whole.truncate(width, overflow="ellipsis")
    return whole.plain


def placed(left: Text, right: Text, width: int) -> Text:
    """Return one line: `left` at its beginning, cut if need be, and `right` at its end."""
    if right.cell_len > width:
        right.truncate(width, overflow="ellipsis")
    gap = 1 if right.cell_len else 0
    room = width - right.cell_len - gap
    if room <= 0:
        return right
    whole = left.copy()
    whole.truncate(room, overflow="ellipsis", pad=True)
    return whole.append(" " * gap).append_text(right)
