"""The name of a sketch on its way from an edge to a hub. The name is the sketch's identity.

    20261114T120000Z-5m-ams-1a2b3c4d5e6f7081.cube      START-LENGTH-SITE-DIGEST

The digest is the beginning of the file's own checksum: equal content, equal name. So everything on the way can tell
a sketch that was sent twice from a second sketch of the same window and site, without opening it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from superhosts.cubefile.container import DIGEST
from superhosts.errors import SuperhostsError, UsageError
from superhosts.pairs import Window
from superhosts.text import printable
from superhosts.times import window_name
from superhosts.units import SECOND, parse_duration

DIGITS = 16  # hexadecimal digits of the checksum that stand in a name
_SITE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")  # a word in a broker's subject, and part of file names
_WINDOW = re.compile(r"([0-9]{8}T[0-9]{6}Z)-([0-9]{1,10}[a-z])")
_TIMES = range(-(1 << 63), 1 << 63)  # nanoseconds since 1970 that a window can have
_ARCHIVED = re.compile(rf"{_WINDOW.pattern}-{_SITE.pattern}\.cube")
_NAME = re.compile(rf"{_WINDOW.pattern}-({_SITE.pattern})-([0-9a-f]{{{DIGITS}}})\.cube")


def check_site(name: str, option: str = "--site") -> str:
    """Return a site's name if it is one; `option` is where it was given."""
    if not name:
        raise UsageError(f"{option}: a name is missing; every place needs one of its own, like ams")
    if not _SITE.fullmatch(name):
        raise UsageError(
            f"{option} '{printable(name)}': letters, digits, - and _ (63 at most, the first a letter or digit)"
        )
    return name


class Parcel(NamedTuple):
    """A sketch as its name tells it: the site that made it, its window, and the beginning of its checksum."""

    site: str
    window: Window
    digest: str

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.window_name}-{self.site}-{self.digest}.cube"

    @property
    def window_name(self) -> str:
        """START-LENGTH: the same for all sites' sketches of a window."""
        return window_name(self.window)

    @classmethod
    def parse(cls, name: str) -> Parcel:
        """Read a name; one that is not a sketch's is refused."""
        match = _NAME.fullmatch(name)
        window = parse_window_name(f"{match[1]}-{match[2]}") if match else None
        if match is None or window is None:
            raise UsageError(f"'{printable(name)}' is not the name of a sketch (START-LENGTH-SITE-DIGEST.cube)")
        parcel = cls(match[3], window, match[4])
        if parcel.name != name:  # 300s for 5m: a second name for the same window
            raise UsageError(f"'{name}' should read {parcel.name}")
        return parcel

    @classmethod
    def of(cls, path: Path, site: str, window: Window) -> Parcel:
        """Name a file that was just written."""
        with path.open("rb") as file:
            file.seek(-DIGEST, 2)
            return cls(site, window, file.read(DIGEST).hex()[:DIGITS])


def site_of(name: str) -> str:
    """Return the site in the name of a sketch."""
    return Parcel.parse(name).site


def parse_window_name(name: str) -> Window | None:
    """Read START-LENGTH; None where it is something else."""
    match = _WINDOW.fullmatch(name)
    if match is None:
        return None
    try:
        start = int(datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()) * SECOND
        window = Window(start, start + parse_duration(match[2]))
    except (ValueError, SuperhostsError):
        return None
    return window if window.start in _TIMES and window.end in _TIMES else None


def is_archived(day: str, name: str) -> bool:
    """Say whether a file's name is one that an archive gives: START-LENGTH-SITE.cube, in the folder of its day."""
    match = _ARCHIVED.fullmatch(name)
    return match is not None and match[1][:8] == day and parse_window_name(f"{match[1]}-{match[2]}") is not None
