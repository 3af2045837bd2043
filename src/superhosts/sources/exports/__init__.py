"""Flow exports: NetFlow v5 and v9, IPFIX and sFlow v5, from UDP, from captures of UDP and from files.

Datagrams come in batches, from sockets (`udp.py`) or from captures and files of datagrams (`files.py`, cut by
`containers.py`), and leave as blocks of packets: a record of a flow is a packet. Read `collector.py` first. It gives a
batch to a compiled walk (`netflow_walk.py`, `sflow_walk.py`) and does what the walk leaves: it reads templates and
options, and keeps data that came before its template. `registry.py` knows the exporters, in memory and on disk;
`elements.py` makes a plan for the walk of a template's fields; `layout.py` has the arrays that Python and walks share.

What reads exports is loaded when there is an input of them: compiled code takes time (60 ms).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from superhosts.sources.base import Scheme, Source
from superhosts.sources.input import Input

if TYPE_CHECKING:
    from superhosts.sources.exports.collector import Pool


def open_port(text: str) -> Source:
    from superhosts.sources.exports.udp import UdpSource, parse_listening

    return UdpSource(text, parse_listening(text))


def open_export_file(file: Input, format: str, time: str, pool: Pool) -> Source:
    """Open a file of exports, or a capture of exports. Files that share a pool share their templates."""
    from superhosts.sources.exports.files import ExportFile

    return ExportFile(file, format, time, pool)


NETFLOW = Scheme("netflow", open_port)
SFLOW = Scheme("sflow", open_port)
