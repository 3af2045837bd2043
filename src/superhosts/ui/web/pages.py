"""The files of the page, read once. No path of a request ever becomes a path of a file."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}

PROBLEM = b'<p class="problem" role="alert">'


class Page(NamedTuple):
    """A file as it is sent."""

    kind: str
    plain: bytes
    packed: bytes
    tag: str

    @classmethod
    def of(cls, kind: str, content: bytes) -> Page:
        """Return the page with this content."""
        tag = hashlib.blake2b(content, digest_size=12).hexdigest()
        return cls(kind, content, gzip.compress(content, 6, mtime=0), f'"{tag}"')

    def saying(self, text: str) -> Page:
        """Return the page with a text, which is no markup, in its place for problems."""
        before, place, after = self.plain.partition(PROBLEM)
        return Page.of(self.kind, before + place + text.encode() + after)


def read_pages() -> dict[str, Page]:
    """Return all files by their names."""
    found = {}
    for name, file in _walk(files("superhosts.ui.web") / "static", ""):
        kind = next((kind for ending, kind in KINDS.items() if name.endswith(ending)), None)
        if kind is None:
            continue
        found[name] = Page.of(kind, file.read_bytes())
    return found


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _walk(each, f"{prefix}{each.name}/")
        else:
            yield prefix + each.name, each
