"""The files of the page: a fixed list, read once. No path of a request ever becomes a path of a file."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from typing import NamedTuple

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}
NAMES = (
    "app.css",
    "alerts.js",
    "api.js",
    "app.js",
    "ask.js",
    "charts.js",
    "dom.js",
    "format.js",
    "help.js",
    "host.js",
    "hosttable.js",
    "icon.svg",
    "index.html",
    "login.html",
    "now.js",
    "sites.js",
    "sketch.js",
    "theme.js",
    "vendor/uplot/LICENSE",
    "vendor/uplot/uPlot.iife.min.js",
    "vendor/uplot/uPlot.min.css",
)


class Page(NamedTuple):
    """A file as it is sent."""

    kind: str
    plain: bytes
    packed: bytes
    tag: str


def read_pages() -> dict[str, Page]:
    """Return all files by their names."""
    folder = files("superhosts.web") / "static"
    found = {}
    for name in NAMES:
        content = folder.joinpath(*name.split("/")).read_bytes()
        kind = next(kind for ending, kind in KINDS.items() if name.endswith(ending))
        tag = hashlib.blake2b(content, digest_size=12).hexdigest()
        found[name] = Page(kind, content, gzip.compress(content, 6, mtime=0), f'"{tag}"')
    return found
