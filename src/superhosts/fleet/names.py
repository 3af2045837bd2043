"""The name of a sketch in transit from an edge to a hub. The name is the sketch's identity.

    20261114T120000Z-5m-ams-1a2b3c4d5e6f7081.cube      START-LENGTH-SITE-DIGEST

The digest is the beginning of the file's checksum: equal content, equal name. So without opening a file, every part of
the link can tell a sketch that was sent twice from a second sketch of the same window and site.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from superhosts.core.fields import FLEET_NAME, FLEET_NAME_RULE, is_fleet_name
from superhosts.core.pairs import Window
from superhosts.core.text import printable
from superhosts.core.times import window_name
from superhosts.core.units import SECOND, parse_duration
from superhosts.cubefile.container import stored_digest
from superhosts.errors import SuperhostsError, UsageError

DIGITS = 16  # hexadecimal digits of the checksum in a name
WINDOW_NAME = re.compile(r"([0-9]{8}T[0-9]{6}Z)-([0-9]{1,10}[a-z])")
_TIMES = range(-(1 << 63), 1 << 63)  # valid times of a window, in nanoseconds since 1970
_NAME = re.compile(rf"{WINDOW_NAME.pattern}-({FLEET_NAME.pattern})-([0-9a-f]{{{DIGITS}}})\.cube")


def check_site(name: str, option: str = "--site") -> str:
    """Return a site's name if it is valid; `option` names its origin in the error message."""
    if not name:
        raise UsageError(f"{option}: a name is missing; every site needs its own, like ams")
    if not is_fleet_name(name):
        raise UsageError(f"{option} '{printable(name)}': {FLEET_NAME_RULE}")
    return name


class SketchId(NamedTuple):
    """What a sketch's name says: its site, its window, and the beginning of its checksum."""

    site: str
    window: Window
    digest: str

    @property
    def name(self) -> str:
        return f"{self.window_name}-{self.site}-{self.digest}.cube"

    @property
    def window_name(self) -> str:
        """START-LENGTH, the same for all sites' sketches of a window."""
        return window_name(self.window)

    @classmethod
    def parse(cls, name: str) -> SketchId:
        """Parse a sketch's name. Raises UsageError for any other name."""
        match = _NAME.fullmatch(name)
        window = parse_window_name(f"{match[1]}-{match[2]}") if match else None
        if match is None or window is None:
            raise UsageError(f"'{printable(name)}' is not the name of a sketch (START-LENGTH-SITE-DIGEST.cube)")
        sketch_id = cls(match[3], window, match[4])
        if sketch_id.name != name:  # 300s instead of 5m would be a second name for the same window
            raise UsageError(f"'{name}' should read {sketch_id.name}")
        return sketch_id

    @classmethod
    def of(cls, path: Path, site: str, window: Window) -> SketchId:
        return cls(site, window, stored_digest(path)[:DIGITS])


def site_of(name: str) -> str:
    return SketchId.parse(name).site


def site_named(name: str) -> str | None:
    """Return the site of a sketch by its name; None for any other name."""
    try:
        return SketchId.parse(name).site
    except UsageError:
        return None


def parse_window_name(name: str) -> Window | None:
    """Parse a window's name, START-LENGTH; None if it is not one."""
    match = WINDOW_NAME.fullmatch(name)
    if match is None:
        return None
    try:
        start = int(datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()) * SECOND
        window = Window(start, start + parse_duration(match[2]))
    except (ValueError, SuperhostsError):
        return None
    return window if window.start in _TIMES and window.end in _TIMES else None
