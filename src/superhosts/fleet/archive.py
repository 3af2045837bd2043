"""Sketches kept for later questions: other thresholds, longer windows, one site less; never who talked to whom.

    ARCHIVE/20261114/20261114T120000Z-5m-hub.cube     the union of all sites
    ARCHIVE/20261114/20261114T120000Z-5m-ams.cube     a site's own, where that is asked for

The names are those of `superhosts scan --save`; `superhosts hosts` and `explain` take the folder as it is.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from superhosts.errors import MergeError, OutputError, SketchFileError, SuperhostsError, UnreadableError
from superhosts.fleet.durable import make_folder, place, sync, sync_folder
from superhosts.fleet.link import Say
from superhosts.fleet.parcels import Parcel, is_archived

SWEEP = 600.0  # seconds between two looks for sketches that are too old


class Archive:
    """A folder of sketches by day, each kept for `keep` seconds after it was written."""

    def __init__(
        self, folder: Path, *, keep: float, site: str, with_sites: bool, key: bytes | str | None, say: Say
    ) -> None:
        self.folder = folder
        self.keep = keep
        self.with_sites = with_sites
        self._site = site
        self._key = key
        self._say = say
        self._swept = 0.0
        try:
            make_folder(folder)
        except OSError as error:
            raise OutputError(f"--archive {folder}: cannot be made: {error.strerror}") from None

    def union(self, key: str) -> Path:
        """Return where the union of a window lies, or would lie."""
        return self._place(key, self._site)

    def add_union(self, path: Path, key: str) -> None:
        """Keep the union of a window; an earlier revision is replaced."""
        self._keep(path, self.union(key))

    def add_site(self, path: Path) -> None:
        """Keep a site's own sketch. A second sketch of the same site and window is merged into the first."""
        parcel = Parcel.parse(path.name)
        own = f"{parcel.site}_site" if parcel.site == self._site else parcel.site  # the union has the hub's name
        target = self._place(parcel.key, own)
        if target.exists():
            from superhosts.detectors.sketch import load

            try:
                whole = load(target, key=self._key)
            except UnreadableError:
                raise
            except SuperhostsError as error:
                self._say(f"{target}: REPLACED by the newer sketch: {error}")
            else:
                try:
                    whole.merge_file(path, key=self._key)
                except UnreadableError:
                    raise
                except (MergeError, SketchFileError) as error:
                    self._say(f"{path.name}: NOT ARCHIVED: {error}")
                else:
                    whole.save(target)
                    sync_folder(target.parent)
                return
        self._keep(path, target)

    def sweep(self, *, now: float | None = None) -> int:
        """Remove what is older than `keep`, now and then; return how many went. Others' files are not touched."""
        if now is None and time.monotonic() - self._swept < SWEEP:
            return 0
        self._swept = time.monotonic()
        limit = (time.time() if now is None else now) - self.keep
        gone = 0
        for left in self.folder.glob("*/.*.tmp"):  # of a hub that was killed
            with contextlib.suppress(OSError):
                if is_archived(left.parent.name, _target_of(left)) and left.stat().st_mtime < time.time() - SWEEP:
                    left.unlink()
        for path in self.folder.glob("*/*.cube"):
            with contextlib.suppress(OSError):  # gone already, or its folder is not empty yet
                if is_archived(path.parent.name, path.name) and path.stat().st_mtime < limit:
                    path.unlink()
                    gone += 1
                    path.parent.rmdir()
        if gone:
            self._say(f"archive: {gone} sketches were older than {self.keep / 86400:.3g} days and are removed")
        return gone

    def _place(self, key: str, site: str) -> Path:
        return self.folder / key[:8] / f"{key}-{site}.cube"

    def _keep(self, path: Path, target: Path) -> None:
        """Put a second name or, on another disk, a copy into the archive."""
        make_folder(target.parent)
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)
            with temporary.open("rb") as file:
                sync(file.fileno())
        place(temporary, target)


def _target_of(temporary: Path) -> str:
    """Return the name that a temporary file was to get: .NAME.tmp, or .NAME.PID.tmp."""
    name = temporary.name.removeprefix(".").removesuffix(".tmp")
    return name if name.endswith(".cube") else name.rpartition(".")[0]
