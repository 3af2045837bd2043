"""An object store as the place of a link: s3://BUCKET/PREFIX, or any other URL to which fsspec can write.

    PREFIX/SITE/.site                written by the edge when it starts: the site sends here
    PREFIX/SITE/NAME.cube            one upload, which is there completely or not at all
    PREFIX/SITE/NAME.cube.receipt    written by the hub

An object store has no rename, which uploads do not need. A store whose uploads can be seen half done (sftp://) works,
too: the hub reads a sketch again whose checksum is wrong, as it does in a folder.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from superhosts.errors import InputError, UsageError
from superhosts.fleet.place import Entry, copy_bounded, is_sketch_name
from superhosts.sources.files import BLOCK_BYTES, file_system

POLL = 5.0  # seconds between two looks: each is a request, and stores charge for requests
LONGEST = 60.0  # longest time in seconds between two attempts while the store does not answer
CONNECT = 10.0  # seconds to wait for a connection
REPLY = 30.0  # seconds to wait for an answer, or for more of it
ATTEMPTS = 2  # at each request; the link repeats what failed, after a pause
PART = 8 << 20  # bytes of one part of a large upload; two are in memory
MOST_LISTED = 10_000  # objects of one site to look at; the names of the oldest windows come first
MOST_SITES = 10_000  # sites to look at in one round; the next round goes on behind them
MARK = ".site"
_STATE = ("size", "ETag", "LastModified", "etag", "mtime", "created", "updated")  # stores name them differently
LAST = "\U0010ffff"  # sorts behind all other names
_Listed = Iterable[tuple[str, Entry]]  # SITE/NAME, or NAME below a site


class Objects:
    """Sketches and receipts as objects of a store. Anybody who can write to it may have put anything there."""

    poll, longest = POLL, LONGEST

    def __init__(self, url: str, option: str) -> None:
        scheme = url.partition(":")[0].lower()
        if scheme in ("http", "https"):
            raise UsageError(f"{option} {url}: give s3://BUCKET/PREFIX, and the server's address in AWS_ENDPOINT_URL")
        try:
            self._system, root = file_system(url, **_system_options(scheme))
        except InputError as error:
            raise UsageError(f"{option} {error}") from None
        if not root.strip("/"):
            raise UsageError(f"{option} {url}: a bucket is missing, as in s3://BUCKET/PREFIX")
        self._url, self._root = url, PurePosixPath(root)
        self._is_s3 = hasattr(self._system, "call_s3")
        self._upload = {"chunksize": PART, "max_concurrency": 2} if self._is_s3 else {}
        if self._is_s3:
            self._system.retries = ATTEMPTS
        self._entries: dict[PurePath, Entry] = {}  # of the last listing
        self._sites: frozenset[str] = frozenset()
        self._prepared: set[str] = set()
        self._behind = ""  # the last site of the round before, if it did not come to the end

    def __str__(self) -> str:
        return self._url

    def home(self, site: str) -> PurePath:
        """Return the prefix of a site."""
        return self._root / site

    def prepare(self, site: str) -> None:
        """Mark the site: its prefix would vanish with its last object."""
        if site not in self._prepared:
            with _errors_as_os_errors():
                self._system.pipe_file(str(self.home(site) / MARK), b"")
            self._prepared.add(site)

    def sites(self) -> Collection[str]:
        """Return the sites of the last listing."""
        return self._sites

    def names(self, site: str) -> set[str]:
        """Return the names of a site's objects."""
        home = self.home(site)
        listed = islice(self._list(home), MOST_LISTED)
        self._entries = {home / name: entry for name, entry in listed if name and "/" not in name and name[0] != "."}
        return {path.name for path in self._entries}

    def sketches(self) -> tuple[set[PurePath], OSError | None]:
        """Return what is named like a sketch: of all sites, or of the next ones in turn if there are very many."""
        sites: set[str] = set()
        found: dict[PurePath, Entry] = {}
        behind, self._behind, last = self._behind, "", ""
        for path, entry in self._list(self._root, by_site=True, behind=behind):
            site, slash, name = path.partition("/")
            if not site or not slash or site[0] == ".":
                continue
            if site not in sites and len(sites) == MOST_SITES:
                self._behind = last
                break
            sites.add(site)
            last = site  # in the order of keys, which is not that of the names of sites
            if name and "/" not in name and is_sketch_name(name):
                found[self._root / site / name] = entry
        self._entries, self._sites = found, frozenset(sites)
        return set(found), None

    def look(self, path: PurePath) -> Entry:
        """Return what the last listing said."""
        entry = self._entries.get(path)
        if entry is None:
            raise FileNotFoundError(path)
        return entry

    def put(self, source: Path, path: PurePath) -> None:
        """Upload a file."""
        with _errors_as_os_errors():
            self._system.put_file(str(source), str(path), **self._upload)

    def fetch(self, path: PurePath, target: Path, most: int) -> bool:
        """Download a sketch, block by block."""
        with _errors_as_os_errors(), self._system.open(str(path), "rb", block_size=BLOCK_BYTES) as read:
            return copy_bounded(read, target, most)

    def read(self, path: PurePath, most: int) -> bytes:
        """Return the beginning of an object."""
        with _errors_as_os_errors(), self._system.open(str(path), "rb", block_size=most) as file:
            return bytes(file.read(most))

    def write(self, path: PurePath, content: dict[str, Any]) -> None:
        """Replace a JSON object."""
        with _errors_as_os_errors():
            self._system.pipe_file(str(path), json.dumps(content).encode())

    def remove(self, path: PurePath) -> None:
        """Remove an object."""
        self._entries.pop(path, None)
        with _errors_as_os_errors():
            try:
                self._system.rm_file(str(path))
            except FileNotFoundError:
                return

    def set_aside(self, path: PurePath) -> str:
        """Fail: a store lists plain objects alone."""
        raise FileNotFoundError(path)

    def _list(self, folder: PurePath, *, by_site: bool = False, behind: str = "") -> _Listed:
        return self._list_pages(folder, by_site, behind) if self._is_s3 else self._list_at_once(folder, behind)

    def _list_pages(self, folder: PurePath, by_site: bool, behind: str) -> _Listed:
        """List an S3 bucket page by page. With `by_site`, what a site has in excess of its share is left out.

        `behind`: begin after this site.
        """
        bucket, prefix, _ = self._system.split_path(f"{folder}/")
        after, crowded, count = f"{prefix}{behind}/{LAST}" if behind else "", "", 0
        while True:
            with _errors_as_os_errors():
                page = self._system.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, StartAfter=after)
            found = page.get("Contents", [])
            for each in found:
                yield each["Key"].removeprefix(prefix), Entry(each["Size"], _state({"size": each["Size"], **each}))
            if not found or not page.get("IsTruncated"):
                return
            after = found[-1]["Key"]
            site = after.removeprefix(prefix).partition("/")[0]
            count = count + len(found) if site == crowded else len(found)
            crowded = site
            if by_site and count >= MOST_LISTED:
                after = f"{prefix}{site}/{LAST}"

    def _list_at_once(self, folder: PurePath, behind: str) -> _Listed:
        with _errors_as_os_errors():
            try:
                found = self._system.find(str(folder), detail=True)
            except FileNotFoundError:
                return  # nobody has written there
        for path, info in sorted(found.items()):
            name = str(path).removeprefix(f"{folder}/")
            if not behind or name > f"{behind}/{LAST}":
                yield name, Entry(int(info["size"] or 0), _state(info))


def _state(info: dict[str, Any]) -> tuple[object, ...]:
    return tuple(str(info.get(name)) for name in _STATE)


def _system_options(scheme: str) -> dict[str, Any]:
    """Return options of fsspec: no caches, as others write there, and limits on the time of a request to S3."""
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme in ("s3", "s3a"):
        limits = {"connect_timeout": CONNECT, "read_timeout": REPLY, "retries": {"max_attempts": 0}}
        options["config_kwargs"] = {**limits, **_configured(scheme).get("config_kwargs", {})}
    return options


def _configured(scheme: str) -> dict[str, Any]:
    """Return the user's own configuration of fsspec for a scheme, which goes before ours."""
    try:
        from fsspec.config import conf
    except ImportError:  # `file_system` says what is missing
        return {}
    found: dict[str, Any] = conf.get(scheme, {})
    return found


@contextmanager
def _errors_as_os_errors() -> Iterator[None]:
    """Make errors of the store's library OSErrors: it has many of its own, and all mean that it does not work now."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error
