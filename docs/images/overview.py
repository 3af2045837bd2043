"""Draw docs/images/overview.svg: how a pair is written into the cube, and how labels give the address back.

    python docs/images/overview.py

The bits are those of a small cube that this script fills: a busy host, and neighbours that share its columns. The AND
on the right is computed from the columns on the left. Colours follow the reader's light or dark scheme.
"""

from __future__ import annotations

import random
from pathlib import Path

ARRAYS, COLUMNS, ROWS = 3, 7, 13
CELL, GAP = 11, 3
PITCH = CELL + GAP
BUSY, PEER, OTHER = "10.1.2.3", "198.51.100.7", "10.9.8.7"
BUSY_ROWS, NEIGHBOUR_ROWS = 7, 3  # bits that hosts set in each of their columns
NEIGHBOURS = 13
HOT = (2, 5, 1)  # the column of the busy host in each array
NAMED = (True, False, True)  # whether its label there is the busy host's own
TOP, LEFT, APART = 112, 232, 146  # where the arrays begin, and from one to the next
WIDTH, HEIGHT = 960, 420

STYLE = """
  .card { fill: #ffffff } .ink { fill: #1f2937 } .soft { fill: #5b6472 }
  .cell { fill: #e9ecf1 } .noise { fill: #9aa3b2 } .busy { fill: #D55E00 } .peer { fill: #0072B2 }
  .onbusy { fill: #ffffff } .line { stroke: #0072B2; fill: none } .edge { stroke: #c3c9d3; fill: none }
  .frame { stroke: #D55E00; fill: none } .tag { fill: #c3c9d3 } .back { fill: #ffffff; stroke: #c3c9d3 }
  .tip { fill: #0072B2 } .give { stroke: #D55E00; fill: none } .givetip { fill: #D55E00 }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117 } .ink { fill: #e6edf3 } .soft { fill: #9da7b3 }
    .cell { fill: #232b36 } .noise { fill: #66707f } .busy { fill: #f0883e } .peer { fill: #58a6ff }
    .onbusy { fill: #0d1117 } .line { stroke: #58a6ff } .edge { stroke: #3d4653 } .frame { stroke: #f0883e }
    .tag { fill: #3d4653 } .back { fill: #0d1117; stroke: #3d4653 } .tip { fill: #58a6ff }
    .give { stroke: #f0883e } .givetip { fill: #f0883e }
  }
"""


def fill_cube() -> list[list[dict[int, bool]]]:
    """Return the set rows of each column of each array: True for those that the busy host has set."""
    draw = random.Random(11)
    cube: list[list[dict[int, bool]]] = [[{} for _ in range(COLUMNS)] for _ in range(ARRAYS)]
    for _ in range(NEIGHBOURS):
        rows = draw.sample(range(ROWS), NEIGHBOUR_ROWS)
        for array in cube:
            array[draw.randrange(COLUMNS)].update(dict.fromkeys(rows, False))
    rows = draw.sample(range(ROWS), BUSY_ROWS)
    for array, column in zip(cube, HOT, strict=True):
        array[column].update(dict.fromkeys(rows, True))
    return cube


def rect(kind: str, x: float, y: float, width: float, height: float, radius: float = 2, more: str = "") -> str:
    """Return a rounded rectangle."""
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"'
    return f'<rect class="{kind}" {place}{more}/>'


def text(words: str, x: float, y: float, kind: str = "ink", size: float = 13, more: str = "") -> str:
    """Return a line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" font-size="{size:g}"{more}>{words}</text>'


MIDDLE, END, BOLD = ' text-anchor="middle"', ' text-anchor="end"', ' font-weight="600"'
MONO = ' font-family="ui-monospace, Menlo, Consolas, monospace"'


def draw_column(x: float, y: float, rows: dict[int, bool]) -> list[str]:
    """Return the cells of a column."""
    kinds = {None: "cell", False: "noise", True: "busy"}
    return [rect(kinds[rows.get(row)], x, y + row * PITCH, CELL, CELL) for row in range(ROWS)]


def draw_array(number: int, columns: list[dict[int, bool]], marked: int) -> list[str]:
    """Return one array: its columns, the labels under them, and the arrow that sets the marked row."""
    x0, hot = LEFT + number * APART, HOT[number]
    wide, tall = COLUMNS * PITCH - GAP, ROWS * PITCH - GAP
    out = [rect("back", x0 - 8 + shift, TOP - 8 - shift, wide + 16, tall + 34, 6) for shift in (12, 6, 0)]
    for column, rows in enumerate(columns):
        x = x0 + column * PITCH
        out += draw_column(x, TOP, rows)
        out.append(rect("busy" if column == hot and NAMED[number] else "tag", x, TOP + tall + 8, CELL, 9, 3))
    x = x0 + hot * PITCH
    out.append(rect("frame", x - 3, TOP - 3, CELL + 6, tall + 6, 4, ' stroke-width="1.6"'))
    y = TOP + marked * PITCH
    out.append(rect("line", x - 1.5, y - 1.5, CELL + 3, CELL + 3, 3, ' stroke-width="2.4"'))
    out.append(f'<path class="line" stroke-width="1.6" d="M{x + CELL / 2:g} 66 V{TOP - 12}"/>')
    out.append(f'<path class="tip" d="M{x + CELL / 2 - 4.5:g} {TOP - 13} h9 l-4.5 8 z"/>')
    place, anchor = (x0 + wide + 8, END) if hot < COLUMNS // 2 else (x0 - 8, "")  # beside the line from its label
    out.append(text(f"array {number + 1}", place, TOP + tall + 40, "soft", 12, anchor))
    return out


def draw_pair() -> list[str]:
    """Return the pair, and the line from it to the arrays."""
    last = LEFT + (ARRAYS - 1) * APART + HOT[-1] * PITCH + CELL / 2
    return [
        text("a pair", 28, 40, more=BOLD),
        rect("edge", 28, 52, 140, 112, 10, ' stroke-width="1.4"'),
        rect("busy", 40, 64, 116, 26, 7),
        text(BUSY, 98, 82, "onbusy", 13, MIDDLE + MONO + BOLD),
        text("host", 98, 105, "soft", 12, MIDDLE),
        rect("peer", 40, 115, 116, 26, 7),
        text(PEER, 98, 133, "onbusy", 13, MIDDLE + MONO + BOLD),
        text("peer", 98, 156, "soft", 12, MIDDLE),
        f'<path class="line" stroke-width="1.6" d="M168 66 H{last:g}"/>',
        text("The host chooses a slice", 28, 200, "soft", 12),
        text("and a column in each array.", 28, 217, "soft", 12),
        text("The pair chooses the row", 28, 243, "soft", 12),
        text("and sets that bit.", 28, 260, "soft", 12),
        text("slices", LEFT + 2 * APART + COLUMNS * PITCH + 22, TOP + 4, "soft", 12),
        text("labels", LEFT - 14, TOP + ROWS * PITCH + 14, "soft", 12, END),
    ]


def draw_labels() -> list[str]:
    """Return what the labels under the columns say, and the arrow that gives the address back."""
    under, level = TOP + ROWS * PITCH - GAP + 17, 348
    out = []
    for number, hot in enumerate(HOT):
        x = LEFT + number * APART + hot * PITCH + CELL / 2
        if NAMED[number]:
            out.append(f'<path class="give" stroke-width="1.6" d="M{x:g} {under + 1} V{level}"/>')
        else:
            out.append(text(OTHER, x + 3, under + 22, "soft", 11, MIDDLE + MONO))
    first = LEFT + HOT[0] * PITCH + CELL / 2
    end = 700
    out += [
        f'<path class="give" stroke-width="1.6" d="M{first:g} {level} H{end - 8}"/>',
        f'<path class="givetip" d="M{end - 9} {level - 4.5} v9 l8 -4.5 z"/>',
        rect("busy", 590, level - 11, 84, 22, 6),
        text(BUSY, 632, level + 4.5, "onbusy", 13, MIDDLE + MONO + BOLD),
        text("A label keeps the host whose pair had the highest priority in its column.", LEFT - 8, 385, "soft", 12),
        text("A busy host wins in most arrays, and one suffices: no list of hosts.", LEFT - 8, 402, "soft", 12),
    ]
    return out


def draw_answer(cube: list[list[dict[int, bool]]]) -> list[str]:
    """Return the AND of the busy host's columns, and the answer."""
    columns = [array[column] for array, column in zip(cube, HOT, strict=True)]
    common = {row: columns[0][row] for row in columns[0] if all(row in column for column in columns)}
    x, wide = 712.0, 34
    tall = ROWS * PITCH - GAP
    out = [text("read back", x, 40, more=BOLD), text("its columns", x, 92, "soft", 12)]
    for number, column in enumerate(columns):
        out += draw_column(x + number * wide, TOP, column)
        if number < ARRAYS - 1:
            out.append(text("∧", x + number * wide + 22.5, TOP + tall / 2 + 5, "ink", 14, MIDDLE))
    end = x + ARRAYS * wide + 14
    out.append(text("=", end - 14, TOP + tall / 2 + 5, "ink", 16, MIDDLE))
    out += draw_column(end, TOP, common)
    out.append(rect("frame", end - 3, TOP - 3, CELL + 6, tall + 6, 4, ' stroke-width="1.6"'))
    out += [
        text("The AND drops", end + 24, TOP + 52, "soft", 12),
        text("most bits of", end + 24, TOP + 69, "soft", 12),
        text("neighbours,", end + 24, TOP + 86, "soft", 12),
        text("an estimator", end + 24, TOP + 103, "soft", 12),
        text("the rest.", end + 24, TOP + 120, "soft", 12),
        text(BUSY, 712, 345, "ink", 15, MONO + BOLD),
        text("4,120 peers", 934, 345, "ink", 15, END + MONO + BOLD),
        text("4,043 to 4,197 with 95 % confidence", 712, 364, "soft", 12),
        text("Cubes of other sites and hours merge:", 712, 385, "soft", 12),
        text("OR of bits, maximum of labels.", 712, 402, "soft", 12),
    ]
    return out


def picture() -> str:
    """Return the SVG."""
    cube = fill_cube()
    marked = sorted(row for row, own in cube[0][HOT[0]].items() if own)[BUSY_ROWS // 2]
    title = "A pair sets one bit in a column of each array; labels under the columns give the host's address back"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"',
        '     font-family="Inter, Helvetica, Arial, sans-serif">',
        f"<title>{title}</title>",
        f"<style>{STYLE}</style>",
        rect("card", 0, 0, WIDTH, HEIGHT, 10),
        *draw_pair(),
        text("the cube: bits and labels, constant memory", LEFT - 8, 40, more=BOLD),
    ]
    for number, array in enumerate(cube):
        parts += draw_array(number, array, marked)
    parts += draw_labels()
    parts += draw_answer(cube)
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(picture(), encoding="utf-8")
