"""Shared code of the benchmarks: timing, comparison of figures with what is wanted, and result files."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wanted import WANTED, verdict

HERE = Path(__file__).parent
# Commands under measurement give the same answers on every machine, and make no key there.
PUBLIC_KEY = {"SUPERHOSTS_KEY": "superhosts default key: public, for tests and single sites"}
PACKAGES = (
    "numpy",
    "numba",
    "llvmlite",
    "numba-cuda",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "duckdb",
    "polars",
    "chdb",
    "pyarrow",
    "pandas",
)


@dataclass
class Figure:
    """One measured number. `value` is compared with what is wanted; `runs` are the measurements it was chosen from."""

    section: str
    name: str
    value: float
    unit: str
    note: str = ""
    runs: list[float] = field(default_factory=list)
    reached: str = ""

    @property
    def spread(self) -> str:
        """Smallest, median and largest run."""
        if len(self.runs) < 2:
            return ""
        return " / ".join(show(x) for x in (min(self.runs), statistics.median(self.runs), max(self.runs)))

    def cells(self) -> list[str]:
        """Return the figure as a row of the table."""
        wanted = WANTED.get(self.name)
        limits = [show(each) if each is not None else "" for each in wanted[:2]] if wanted else ["", ""]
        return [
            self.name,
            show(self.value),
            self.unit,
            *limits,
            self.reached,
            self.spread,
            str(len(self.runs)),
            self.note,
        ]


HEADER = ["figure", "value", "unit", "wanted", "at best", "reached", "min / median / max", "runs", "note"]


def show(value: float) -> str:
    """Format a number with three significant digits and no exponent."""
    if value == 0:
        return "0"
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.3g}"


class Report:
    """The figures of one run."""

    def __init__(self, *, quick: bool) -> None:
        self.quick = quick
        self.figures: list[Figure] = []
        self.seconds: dict[str, float] = {}
        self.machine = machine()
        self.place = f"{self.machine['arch']}-{self.machine['cores']}"  # the machine in names of result files
        self.load = os.getloadavg()[0]
        self.started = datetime.now(UTC)
        self.commit = commit()  # read at the start, as the code is imported now

    def add(self, section: str, name: str, value: float, unit: str, *, note: str = "", runs: Any = ()) -> Figure:
        """Add a figure to the report and print it."""
        reached = "" if self.quick else verdict(name, float(value))  # What is wanted is wanted of full inputs.
        figure = Figure(section, name, float(value), unit, note, [float(run) for run in runs], reached)
        self.figures.append(figure)
        extra = " · ".join(text for text in (reached, figure.spread, note) if text)
        print(f"  {name:58} {show(figure.value):>8} {unit:12} {extra}", flush=True)
        return figure

    def table(self) -> str:
        """Return all figures as a Markdown table with aligned columns."""
        rows = [HEADER, *(figure.cells() for figure in self.figures)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
        right = {1, 3, 4, 7}
        lines = [
            "| " + " | ".join(f"{cell:>{w}}" if i in right else f"{cell:<{w}}" for i, (cell, w) in pairs) + " |"
            for row in rows
            for pairs in [list(enumerate(zip(row, widths, strict=True)))]
        ]
        ruler = "|" + "|".join("-" * (w + 1) + (":" if i in right else "-") for i, w in enumerate(widths)) + "|"
        return "\n".join([lines[0], ruler, *lines[1:]])

    def write(self, folder: Path, name: str, title: str = "CPU benchmarks") -> list[Path]:
        """Write NAME.md over the result of an earlier run, which git keeps.

        Figures of code that is in no commit cannot be measured again: nothing is written then.
        """
        after = commit()
        if after != self.commit or not re.fullmatch("[0-9a-f]{40}", after):
            print(f"NOT WRITTEN: {name}.md: the code under test is not a commit ({self.commit}, at the end {after})")
            return []
        folder.mkdir(parents=True, exist_ok=True)
        versions = ", ".join(f"{package} {version}" for package, version in self.machine["packages"].items())
        lines = [
            f"# {title}, {self.started:%Y-%m-%dT%H:%M:%SZ}, {'small' if self.quick else 'full'} inputs",
            "",
            f"- machine: {self.machine['cpu']}, {self.machine['cores']} cores, {self.machine['memory_gib']} GiB, "
            f"{self.machine['kernel']}",
            *([f"- GPU: {self.machine['gpu']}"] if "gpu" in self.machine else []),
            f"- Python {self.machine['python']}, {versions}",
            f"- commit {after}, load at the start {self.load:.2f}",
            f"- command: `{shlex.join(['python', *sys.argv])}`",
            f"- seconds: {', '.join(f'{section} {value:.0f}' for section, value in self.seconds.items())}",
            "",
            self.table(),
            "",
        ]
        path = folder / f"{name}.md"
        path.write_text("\n".join(lines))
        return [path]


def machine() -> dict[str, Any]:
    """Describe this machine and the software on it."""
    from superhosts import __version__

    packages = {"superhosts": __version__}
    for package in PACKAGES:
        try:
            packages[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            if not package.startswith(("numba-cuda", "cupy")):  # These are only installed for GPUs, and one cupy only.
                packages[package] = "missing"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_model(),
        "arch": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": packages,
    }


def _cpu_model() -> str:
    """Return the processor's name from lscpu, which also decodes the part numbers of ARM."""
    names = {"Model name": "", "L3 cache": ""}
    try:
        listing = subprocess.run(
            ["lscpu"], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.CalledProcessError):
        return platform.processor() or platform.machine()
    for line in listing.stdout.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in names and not names[key.strip()]:
            names[key.strip()] = value.strip()
    return names["Model name"] + (f", L3 {names['L3 cache']}" if names["L3 cache"] else "")


def commit() -> str:
    """Return the commit under test, with a + if files differ from it, or "unknown" for a package from elsewhere.

    On machines without the repository, SUPERHOSTS_COMMIT provides the commit.
    """
    import superhosts

    if os.environ.get("SUPERHOSTS_COMMIT"):
        return os.environ["SUPERHOSTS_COMMIT"]

    home = Path(superhosts.__file__).resolve().parent
    if not home.is_relative_to(HERE.resolve().parent):
        return f"unknown: superhosts comes from {home}"

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(HERE), *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        dirty = git(
            "status",
            "--porcelain",
            "--",
            ":(top)src",
            ":(top)benchmarks",
            ":(top)pyproject.toml",
            ":(top,exclude)benchmarks/results",
        )
        return git("rev-parse", "HEAD") + ("+" if dirty else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Call a function after a garbage collection. Return the seconds and its result."""
    gc.collect()
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def superhosts_command() -> list[str]:
    """Return the command that starts the command line of the installed package."""
    script = Path(sys.executable).parent / "superhosts"
    return [str(script)] if script.exists() else [sys.executable, "-m", "superhosts"]


def run_command(
    *arguments: str, env: dict[str, str] | None = None, program: Sequence[str] | None = None
) -> tuple[float, str]:
    """Run a command of superhosts with the public key. Return its wall-clock seconds and its standard output.

    `program` is what is run instead of superhosts itself.
    """
    start = time.perf_counter()
    environment = {**os.environ, **PUBLIC_KEY, **(env or {})}
    words = [*(program or superhosts_command()), *arguments]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"superhosts {shlex.join(arguments)}: status {done.returncode}\n{done.stderr}")
    return seconds, done.stdout
