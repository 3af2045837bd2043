"""The kinds of inputs that are flow exports. What reads them is loaded when there is one: compiled code takes time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from superhosts.sources.base import Scheme, Source
from superhosts.sources.input import Input

if TYPE_CHECKING:
    from superhosts.sources.exports.collector import Pool


def open_port(text: str) -> Source:
    """Open a port by the name of the input."""
    from superhosts.sources.exports.udp import open_udp

    return open_udp(text)


def open_export_file(file: Input, format: str, time: str, pool: Pool) -> Source:
    """Open a file of exports, or a capture of exports. Files that share a pool share their templates."""
    from superhosts.sources.exports.files import ExportFile

    return ExportFile(file, format, time, pool)


NETFLOW = Scheme("netflow", open_port)
SFLOW = Scheme("sflow", open_port)
