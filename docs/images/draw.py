"""Draw columns.svg and windows.svg for docs/explanation/how-it-works.md: `python docs/images/draw.py`.

Every number in them comes from the program: a small cube with one host, and a scan of a small table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import superhosts as sh

HERE = Path(__file__).parent
PEERS = 1200  # that the scan of the second picture touches
BEGIN = 1_772_442_150  # 2026-03-02 09:02:30 UTC, in the middle of a window
INK, SOFT, LINE, BLUE, AMBER = "#1f2937", "#64748b", "#d5dbe3", "#4361b8", "#d97706"
FONT = 'font-family="system-ui, Helvetica, Arial, sans-serif"'
SIDE = 16  # rows of a column are drawn as a square of so many by so many


def columns() -> Iterator[str]:
    """One column of 256 rows with more and more peers, what the cube makes of it, and the curve behind that."""
    geometry = sh.Geometry(32, 0, 3, 8, 64, 1, 0)
    for number, count in enumerate((20, 100, 300, 600)):
        cube = sh.Cube(geometry=geometry, key="public picture", exact=False, device="cpu")
        cube.update(np.full(count, 0x0A000001, np.uint32), np.arange(count, dtype=np.uint32))
        (column,) = (each for each in cube.bits[: geometry.columns] if each.any())  # of the first of three arrays
        rows = np.unpackbits(column.view(np.uint8), bitorder="little")
        row = cube.estimate("10.0.0.1")
        left = 30 + 225 * number
        yield text(left, 34, f"{count} peers", INK, 16, "bold")
        for place, is_set in enumerate(rows):
            x, y = left + 11 * (place % SIDE), 48 + 11 * (place // SIDE)
            yield f'<rect x="{x}" y="{y}" width="9" height="9" rx="1.5" fill="{BLUE if is_set else LINE}"/>'
        yield text(left, 246, f"{rows.sum()} of 256 rows are set", SOFT, 13)
        yield text(left, 266, f"estimate {row.peers}, 95 % {row.peers_low} to {row.peers_high}", SOFT, 13)


def windows() -> Iterator[str]:
    """A scan of five minutes that straddles two windows: its peers in windows side by side, and in overlapping ones."""
    plain, sliding = (list(found(**options)) for options in ({}, {"slide": "150s"}))
    first, last = min(start for start, _, _ in sliding), max(end for _, end, _ in plain)
    scale = 830 / (last - first)
    yield text(40, 34, f"a scan of {PEERS:,} addresses in five minutes", INK, 15, "bold")
    yield bar(40 + (BEGIN - first) * scale, 44, 300 * scale, 8, BLUE)
    y = 86.0
    for title, rows in (("--window 5m", plain), ("--window 5m --slide 150s", sliding)):
        yield text(40, y, title, INK, 15, "bold")
        for start, end, peers in rows:
            y += 14 if start == rows[0][0] else 28
            x, width = 40 + (start - first) * scale, (end - start) * scale - 4
            yield bar(x, y, width, 24, AMBER if peers == PEERS else LINE)
            yield text(
                x + width / 2, y + 16.5, f"{peers:,} peers", "#ffffff" if peers == PEERS else INK, 13, anchor="middle"
            )
        y += 60


def found(**options: str) -> Iterator[tuple[float, float, int]]:
    """Yield start, end and the scanner's peers of every window."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "scan.csv"
        lines = [
            f"{BEGIN + number * 300 / PEERS:.3f},10.1.2.3,198.18.{number // 250}.{number % 250}"
            for number in range(PEERS)
        ]
        table.write_text("\n".join(["time,src,dst", *lines]) + "\n")
        for window in sh.scan(str(table), inner="private", window="5m", threshold=1, **options):
            for row in window:
                assert row.window_start
                assert row.window_end
                yield row.window_start.timestamp(), row.window_end.timestamp(), row.known_peers


def bar(x: float, y: float, width: float, height: int, colour: str) -> str:
    """Return a bar."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="4" fill="{colour}"/>'


def text(x: float, y: float, words: str, colour: str, size: int, weight: str = "normal", anchor: str = "start") -> str:
    """Return a line of text."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{colour}" font-size="{size}" font-weight="{weight}">{words}</text>'


def picture(parts: Iterator[str], title: str, height: int) -> str:
    """Return the parts as a picture on a white ground, which reads well on dark pages, too."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 930 {height}" {FONT}>'
    lines = [head, f"<title>{title}</title>", f'<rect width="930" height="{height}" rx="10" fill="#ffffff"/>', *parts]
    return "\n".join([*lines, "</svg>\n"])


def pictures() -> dict[str, str]:
    """Return the pictures by the name of their file."""
    return {
        "columns.svg": picture(columns(), "A column fills up, and what the cube makes of it", 290),
        "windows.svg": picture(windows(), "A scan in windows that follow each other, and in windows that overlap", 290),
    }


if __name__ == "__main__":
    for name, drawn in pictures().items():
        (HERE / name).write_text(drawn, "utf-8")
