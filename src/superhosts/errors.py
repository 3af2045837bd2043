"""Errors that a user can act on. Each knows the exit status that the command line gives for it.

A message names the thing (file, byte offset, option, key), what is wrong with it and the way out, so that
the command line prints it as it is, without a traceback.
"""


class SuperhostsError(Exception):
    """Any error of this package that is meant for the user's eyes."""

    exit_status = 2


class UsageError(SuperhostsError, ValueError):
    """An option or argument that cannot be."""


class GeometryError(UsageError):
    """A cube that cannot be built; the message names the rule that it breaks."""


class GpuMemoryError(UsageError):
    """A sketch for which a GPU has no room."""


class MergeError(SuperhostsError, ValueError):
    """Two sketches that must not be merged: another key, geometry or detector."""


class InputError(SuperhostsError):
    """Traffic that cannot be read. The message names the file and, inside a file, the byte offset."""

    exit_status = 3

    def __init__(self, message: str, *, file: str, offset: int | None = None) -> None:
        place = file if offset is None else f"{file}: byte {offset}"
        super().__init__(f"{place}: {message}")
        self.message = message
        self.file = file
        self.offset = offset


class SketchFileError(InputError):
    """A .cube file that is damaged, cut, of another version, or not a .cube file at all."""


class UnreadableError(SketchFileError):
    """A .cube file that the disk does not give now (EIO, EMFILE …): nothing is known of its content."""


class VersionError(SketchFileError):
    """A .cube file that is whole, of a version that this program does not read."""


class HalfMergedError(SketchFileError):
    """A .cube file that failed while it was being merged: the sketch that took it in holds part of it."""


class HalfReadError(HalfMergedError, UnreadableError):
    """A .cube file that the disk did not give to its end while it was being merged."""


class OutputError(SuperhostsError):
    """A result that cannot be written. Its cause is the system's error, where there is one."""

    exit_status = 4


class RefusedError(SuperhostsError):
    """Windows of an edge that the hub did not take."""

    exit_status = 5


class MissingExtraError(SuperhostsError, ImportError):
    """A feature whose optional packages are not installed; the message gives the pip command."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs packages that are not installed: pip install 'superhosts[{extra}]'")
