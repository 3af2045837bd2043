"""The sheet on which a figure is drawn, and the files that it becomes.

A sheet is as wide as a column of a paper and has letters of 8 points. Under each figure stands what it depends on: the
threshold, flows, windows, memory and key. The command that made it is in the file's metadata. Colours are those of
Okabe and Ito, which people with any colour vision can tell apart; marks differ, too. The same input gives the same
bytes, if the version of matplotlib is the same.
"""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from superhosts.core.files import os_errors, output_errors, replaceable, replacing
from superhosts.core.hashing import DEFAULT_KEY, fingerprint
from superhosts.core.text import short_count
from superhosts.errors import OutputError, UsageError, import_extra

WIDTH = 3.4  # inches: one column of a paper with two
CAPTION_WIDTH = 62  # characters of a line under a figure
LEAST_RATE = 1e-3  # rates are drawn from here on a logarithmic axis, below it on a straight one
MIB = 1 << 20
KINDS = (".svg", ".pdf", ".png")
GREY = "#666666"
SHORT_RANGE = 50  # a logarithmic axis over less than this has labels between the powers of ten
OKABE_ITO = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "purple": "#CC79A7",
}
# In the order of their use; yellow is pale.
SERIES = ("vermillion", "blue", "green", "purple", "orange", "sky", "black")
SHAPES = "osD^vPX"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "superhosts",  # Names inside the file depend on nothing else.
    "svg.fonttype": "none",  # Text remains text.
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "lines.linewidth": 0.9,
    "lines.markersize": 4.5,
    "savefig.dpi": 300,
}


class Note(NamedTuple):
    caption: str
    command: str


class Look(NamedTuple):
    """The colour and mark of a series; an open mark for a variant of another series."""

    colour: str
    marker: str
    is_open: bool = False

    @property
    def options(self) -> dict[str, Any]:
        face = "white" if self.is_open else self.colour
        return {"color": self.colour, "marker": self.marker, "mfc": face, "mec": self.colour}


def series_look(number: int) -> Look:
    return Look(OKABE_ITO[SERIES[number % len(SERIES)]], SHAPES[number % len(SHAPES)])


def caption(*facts: str) -> str:
    """Return the text under a figure. Lines break between facts, unless one is too long; empty ones are left out."""
    whole = "\N{NO-BREAK SPACE}"
    return " · ".join(fact.replace(" ", whole) if len(fact) < CAPTION_WIDTH else fact for fact in facts if fact)


def key_words(prints: Iterable[str]) -> str:
    """Name keys by their fingerprints: the public one, or the first digits of another."""
    public = fingerprint(DEFAULT_KEY)
    names = ["public key" if each == public else f"key {each[:8]}" for each in sorted(set(prints))]
    return ", ".join(names)


def new_figure(height: float) -> Any:
    """Return an empty figure of matplotlib. Raise MissingExtraError if matplotlib is not installed."""
    figures = import_extra("a figure", "figures", "matplotlib.figure")
    return figures.Figure(figsize=(WIDTH, height), layout="constrained")


def prepare_folder(folder: Path) -> None:
    """Raise if figures cannot be drawn or written, before hours of work; make the folder."""
    new_figure(1)
    _check(folder, folder.parent)
    with os_errors(f"{folder}: figures cannot be written there"):
        folder.mkdir(exist_ok=True)
    _check(folder, folder)


def prepare_file(path: Path | None, option: str = "--plot") -> None:
    """Raise if a figure cannot be drawn or written to this file, before the work. None means that none is wanted."""
    if path is None:
        return
    if path.suffix.lower() not in KINDS:
        raise UsageError(f"{option} {path}: write a name that ends in {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    new_figure(1)
    replaceable(path)
    _check(path, path.parent)


def _check(path: Path, folder: Path) -> None:
    if not folder.is_dir():
        raise OutputError(f"{path}: figures cannot be written there: {folder} is not a folder")
    with os_errors(f"{path}: figures cannot be written there"), tempfile.TemporaryFile(dir=folder):
        pass


def draw(files: Sequence[Path], height: float, note: Note, paint: Callable[[Any], None]) -> list[Path]:
    """Draw a figure into files, each of which appears whole or not at all. `paint` gets the empty figure."""
    figure = new_figure(height)
    from matplotlib import rc_context

    with rc_context(STYLE):
        paint(figure)
        lines = textwrap.wrap(note.caption, CAPTION_WIDTH, break_long_words=False)
        figure.supxlabel(
            "\n".join(line.removeprefix("· ").removesuffix(" ·") for line in lines), fontsize=7, color=GREY
        )
        for file in files:
            with output_errors(file), replacing(replaceable(file)) as temporary:
                kind = file.suffix.lower()
                figure.savefig(temporary, format=kind[1:], metadata=_metadata(kind, note.command))
    return list(files)


def _metadata(kind: str, command: str) -> dict[str, str | None]:
    if kind == ".svg":
        return {"Date": None, "Description": command}
    if kind == ".pdf":
        return {"CreationDate": None, "Subject": command}
    return {"Description": command}


def scale_rates(axis: Any) -> None:
    """Make an axis of rates logarithmic down to the least one and straight below it: a logarithm has no 0."""
    name = axis.axis_name
    getattr(axis.axes, f"set_{name}scale")("symlog", linthresh=LEAST_RATE, linscale=0.6)
    getattr(axis.axes, f"set_{name}lim")(**{"left" if name == "x" else "bottom": 0})
    axis.set_major_formatter(lambda value, _: f"{100 * value:g} %")


def show_thousands(axis: Any) -> None:
    """Write the numbers of an axis in short: 500, 2k, 1.5M. Its data are there, and decide how many it has."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_data_interval()
    if axis.get_scale() == "log" and low > 0 and high < SHORT_RANGE * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: short_count(value))
    axis.set_minor_formatter(NullFormatter())
