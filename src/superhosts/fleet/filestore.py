"""Where the link by files keeps sketches and receipts: a folder or an object store.

Every path is STORE/SITE/NAME. A store is shared with the other end of the link, so nothing in it is trusted. All
methods raise OSError if the store does not work now, and may be repeated.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from superhosts.core.files import copy_durably, open_fresh, open_plain, remove_or_set_aside, set_aside, sync, write_json
from superhosts.cubefile.container import MAGIC
from superhosts.errors import InputError, UsageError
from superhosts.sources.files import BLOCK_BYTES, file_system

_ZEROS = bytes(1 << 20)
FOLDER_POLL = 0.5  # seconds between two scans of a folder; network mounts do not announce changes
OBJECT_POLL = 5.0  # seconds between two looks: each is a request, and stores charge for requests
OBJECT_LONGEST = 60.0  # longest time in seconds between two attempts while the store does not answer
CONNECT = 10.0  # seconds to wait for a connection
REPLY = 30.0  # seconds to wait for an answer, or for more of it
ATTEMPTS = 2  # at each request; the link repeats what failed, after a pause
PART = 8 << 20  # bytes of one part of a large upload; two are in memory
MOST_LISTED = 10_000  # objects of one site to look at; the names of the oldest windows come first
MOST_SITES = 10_000  # sites to look at in one round; the next round goes on behind them
MARK = ".site"
_STATE = ("size", "ETag", "LastModified", "etag", "mtime", "created", "updated")  # stores name them differently
LAST = "\U0010ffff"  # sorts behind all other names


class Entry(NamedTuple):
    """What a store says about a path without opening it."""

    size: int
    state: tuple[object, ...]  # differs if the content does
    is_plain: bool = True  # False for a folder, a link or a FIFO
    is_folder: bool = False


class FolderStore:
    """Sketches and receipts as files: a shared disk, a mount, or two folders that rsync synchronises.

    Anybody may have put anything there.
    """

    poll = longest = FOLDER_POLL  # a folder costs nothing to try, so that a mount that appears is used at once

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def home(self, site: str) -> PurePath:
        return self._folder / site

    def prepare(self, site: str) -> None:
        """Make the site's part of the store, if it is missing."""
        (self._folder / site).mkdir(parents=True, exist_ok=True)

    def sites(self) -> Collection[str]:
        """Return the sites that have a part of the store, none if that is not known now."""
        try:
            return {path.name for path in self._folder.iterdir() if _is_site(path)}
        except OSError:
            return ()

    def names(self, site: str) -> set[str]:
        return {path.name for path in (self._folder / site).iterdir()}

    def sketches(self) -> tuple[set[PurePath], OSError | None]:
        """Return what is named like a sketch, of all sites, and the error of a site that could not be read.

        Raises OSError if the folder itself cannot be read.
        """
        found: set[PurePath] = set()
        trouble: OSError | None = None
        for site in self._folder.iterdir():
            try:
                if _is_site(site):
                    found |= {path for path in site.iterdir() if is_sketch_name(path.name)}
            except OSError as error:
                trouble = error
        return found, trouble

    def look(self, path: PurePath) -> Entry:
        """Return what is known about a path that was listed; FileNotFoundError if it is gone."""
        status = Path(path).lstat()
        size = max(status.st_size, 512 * status.st_blocks)  # the apparent size, or the size on disk if that is larger
        state = (status.st_size, status.st_mtime_ns, status.st_ino)
        return Entry(size, state, stat.S_ISREG(status.st_mode), stat.S_ISDIR(status.st_mode))

    def put(self, source: Path, path: PurePath) -> None:
        """Copy a file into the store, at once or not at all."""
        copy_durably(source, Path(path), shared=True)

    def fetch(self, path: PurePath, target: Path, most: int) -> bool:
        """Copy a sketch of at most `most` bytes to this machine's disk; return False if it is none."""
        with open_plain(Path(path)) as read:
            return copy_bounded(read, target, most)

    def read(self, path: PurePath, most: int) -> bytes:
        with open_plain(Path(path)) as file:
            return file.read(most)

    def write(self, path: PurePath, content: dict[str, Any]) -> None:
        """Replace a JSON file; who may read it is decided by the umask, because edge and hub may be two users."""
        write_json(Path(path), content, shared=True)

    def remove(self, path: PurePath) -> None:
        """Remove a path. It may be gone already."""
        remove_or_set_aside(Path(path))

    def set_aside(self, path: PurePath) -> str:
        """Rename something that is not a plain file; return its new name."""
        return set_aside(Path(path)).name


class ObjectStore:
    """Sketches and receipts as objects of a store: s3://BUCKET/PREFIX, or any other URL to which fsspec can write.

        PREFIX/SITE/.site                written by the edge when it starts: the site sends here
        PREFIX/SITE/NAME.cube            one upload, which is there completely or not at all
        PREFIX/SITE/NAME.cube.receipt    written by the hub

    An object store has no rename, which uploads do not need. A store whose uploads can be seen half done (sftp://)
    works, too: the hub reads a sketch again whose checksum is wrong, as it does in a folder. Anybody who can write to
    the store may have put anything there.
    """

    poll, longest = OBJECT_POLL, OBJECT_LONGEST

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
        return self._root / site

    def prepare(self, site: str) -> None:
        """Mark the site: its prefix would vanish with its last object."""
        if site not in self._prepared:
            with _errors_as_os_errors():
                self._system.pipe_file(str(self.home(site) / MARK), b"")
            self._prepared.add(site)

    def sites(self) -> Collection[str]:
        return self._sites

    def names(self, site: str) -> set[str]:
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
        entry = self._entries.get(path)
        if entry is None:
            raise FileNotFoundError(path)
        return entry

    def put(self, source: Path, path: PurePath) -> None:
        with _errors_as_os_errors():
            self._system.put_file(str(source), str(path), **self._upload)

    def fetch(self, path: PurePath, target: Path, most: int) -> bool:
        with _errors_as_os_errors(), self._system.open(str(path), "rb", block_size=BLOCK_BYTES) as read:
            return copy_bounded(read, target, most)

    def read(self, path: PurePath, most: int) -> bytes:
        with _errors_as_os_errors(), self._system.open(str(path), "rb", block_size=most) as file:
            return bytes(file.read(most))

    def write(self, path: PurePath, content: dict[str, Any]) -> None:
        with _errors_as_os_errors():
            self._system.pipe_file(str(path), json.dumps(content).encode())

    def remove(self, path: PurePath) -> None:
        self._entries.pop(path, None)
        with suppress(FileNotFoundError), _errors_as_os_errors():
            self._system.rm_file(str(path))

    def set_aside(self, path: PurePath) -> str:
        """Fail: a store lists plain objects alone."""
        raise FileNotFoundError(path)

    def _list(self, folder: PurePath, *, by_site: bool = False, behind: str = "") -> Iterator[tuple[str, Entry]]:
        return self._list_pages(folder, by_site, behind) if self._is_s3 else self._list_at_once(folder, behind)

    def _list_pages(self, folder: PurePath, by_site: bool, behind: str) -> Iterator[tuple[str, Entry]]:
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

    def _list_at_once(self, folder: PurePath, behind: str) -> Iterator[tuple[str, Entry]]:
        found: dict[str, Any] = {}
        with suppress(FileNotFoundError), _errors_as_os_errors():  # nobody has written there
            found = self._system.find(str(folder), detail=True)
        for path, info in sorted(found.items()):
            name = str(path).removeprefix(f"{folder}/")
            if not behind or name > f"{behind}/{LAST}":
                yield name, Entry(int(info["size"] or 0), _state(info))


FileStore = FolderStore | ObjectStore


def is_sketch_name(name: str) -> bool:
    return name.endswith(".cube") and name[0] != "."


def copy_bounded(read: BinaryIO, target: Path, most: int) -> bool:
    """Write a file of what begins like a sketch and has at most `most` bytes; return False for anything else.

    The copy is as sparse as the file: a sparse file may be larger than the disk.
    """
    with open_fresh(target) as write:
        size = 0
        while block := read.read(len(_ZEROS)):
            if size == 0 and block[: len(MAGIC)] != MAGIC:
                return False
            size += len(block)
            if size > most:
                return False
            if block == _ZEROS:
                write.seek(size)
            else:
                write.write(block)
        write.truncate(size)
        write.flush()
        sync(write.fileno())
    return size > 0


def _is_site(path: Path) -> bool:
    return path.is_dir() and path.name[0] != "."


def _state(info: dict[str, Any]) -> tuple[object, ...]:
    return tuple(str(info.get(name)) for name in _STATE)


def _system_options(scheme: str) -> dict[str, Any]:
    """Return options of fsspec: no caches, as others write there, and limits on the time of a request to S3."""
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme in ("s3", "s3a"):
        limits = {"connect_timeout": CONNECT, "read_timeout": REPLY, "retries": {"max_attempts": 0}}
        with suppress(ImportError):  # `file_system` says what is missing
            from fsspec.config import conf

            limits |= conf.get(scheme, {}).get("config_kwargs", {})  # the user's own configuration of fsspec
        options["config_kwargs"] = limits
    return options


@contextmanager
def _errors_as_os_errors() -> Iterator[None]:
    """Make errors of the store's library OSErrors: it has many of its own, and all mean that it does not work now."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error
