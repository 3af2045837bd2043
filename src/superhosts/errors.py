"""Errors that a user can act on. Each class defines the exit status with which the command line exits.

A message names the object (file, byte offset, option, key), says what is wrong with it and how to fix it. The command
line prints the message unchanged, without a traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

_take_traceback: Callable[[str], None] | None = None


class SuperhostsError(Exception):
    """Base class of all errors that this package reports to users."""

    exit_status = 2


def use_tracebacks(take: Callable[[str], None] | None) -> None:
    """Hand the tracebacks of internal errors to `take` from now on; None: to nobody."""
    global _take_traceback
    _take_traceback = take


def internal_error(error: BaseException) -> str:
    """Return the message for an exception that no code foresaw, and hand on its traceback."""
    if _take_traceback is not None:
        _take_traceback("".join(traceback.format_exception(error)))
    return f"internal error ({type(error).__name__}: {str(error)[:200]}); please report it (--verbose shows where)"


class UsageError(SuperhostsError, ValueError):
    """An invalid option or argument."""


class ThresholdWarning(UserWarning):
    """The threshold is lower or higher than the sketch's geometry and fill support."""


class DeviceWarning(UserWarning):
    """The work goes on on another device, or not on the one that could be expected."""


class GeometryError(UsageError):
    """Invalid sizes of a sketch. The message names the rule that they break."""


class GpuMemoryError(UsageError):
    """A sketch that does not fit into the memory of a GPU."""


class MergeError(SuperhostsError, ValueError):
    """Two sketches that cannot be merged because they differ in key, geometry or detector."""


class DifferenceError(MergeError):
    """Two sketches that were made with different settings.

    `there` is the setting of the sketch to merge, `here` that of the one that it goes into, as the caller writes them.
    """

    def __init__(self, message: str, *, there: str, here: str, advice: str = "") -> None:
        super().__init__(message)
        self.there, self.here, self.advice = there, here, advice

    def naming(self, file: str, into: str, advice: str | None = None) -> DifferenceError:
        """Return the same error with the names of both: of the file to merge, and of what it goes into."""
        text = f"{file}: cannot be merged into {into}: it was made with {self.there}, {into} with {self.here}"
        way = self.advice if advice is None else advice
        return DifferenceError(f"{text}; {way}" if way else text, there=self.there, here=self.here, advice=way)


class InputError(SuperhostsError):
    """Input that cannot be read. The message names the file and, where known, the byte offset."""

    exit_status = 3

    def __init__(self, message: str, *, file: str, offset: int | None = None) -> None:
        place = file if offset is None else f"{file}: byte {offset}"
        super().__init__(f"{place}: {message}")
        self.message = message
        self.file = file
        self.offset = offset


class SketchFileError(InputError):
    """A .cube file that is damaged, truncated, of another version, or not a .cube file at all."""


class UnreadableError(SketchFileError):
    """A .cube file that cannot be read at the moment (EIO, EMFILE …). Its content may be intact."""


class VersionError(SketchFileError):
    """An intact .cube file of a format version that this program does not read."""

    is_newer = False  # True if a later release has written it


class HalfMergedError(SketchFileError):
    """A .cube file that failed during a merge. The sketch that it was merged into contains part of it."""


class HalfReadError(HalfMergedError, UnreadableError):
    """A .cube file that became unreadable during a merge. The sketch contains part of it."""


class OutputError(SuperhostsError):
    """A result that cannot be written. `__cause__` is the operating system's error, if there was one."""

    exit_status = 4


class RefusedError(SuperhostsError):
    """Windows of an edge that the hub did not accept."""

    exit_status = 5


class MissingExtraError(SuperhostsError, ImportError):
    """A feature whose optional packages are not installed. The message contains the pip command."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs packages that are not installed: pip install 'superhosts[{extra}]'")


def import_extra(feature: str, extra: str, *modules: str) -> Any:
    """Return the last of some optional modules. Raise MissingExtraError if one of them is not installed."""
    try:
        return [import_module(name) for name in modules][-1]
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error
