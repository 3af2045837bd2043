"""Options that say which traffic counts and what it is counted with: the same words in every command that reads any."""

from __future__ import annotations

from typing import Annotated

import typer

INPUT_HELP = (
    "Captures (pcap, pcapng; also .gz, .zst, .xz), folders of them, patterns in quotes ('day/**/*.pcap'), URLs "
    "(s3://…), - for standard input, or synth:flows=100k,… for synthetic traffic."
)
Inputs = Annotated[list[str], typer.Argument(metavar="INPUT...", help=INPUT_HELP)]
Inner = Annotated[
    list[str],
    typer.Option(help="Monitored prefix, or @FILE of prefixes; repeatable. Without it every address is a host."),
]
Exclude = Annotated[list[str], typer.Option(help="Prefix (or @FILE) whose addresses are never hosts; repeatable.")]
Watch = Annotated[list[str], typer.Option(help="Hosts to find: inner or outer; repeatable.")]
Direction = Annotated[
    list[str], typer.Option(help="Packets that count: any, out (the host sent it) or in; repeatable.")
]
WindowLength = Annotated[str, typer.Option("--window", "-w", help="Length of a window: 90s, 5m, 1h, 30d, or all.")]
Memory = Annotated[str, typer.Option("--memory", "-m", help="Memory of one cube.")]
GeometryText = Annotated[
    str,
    typer.Option("--geometry", metavar="TEXT", help="Sizes of one cube as superhosts plan writes them, not --memory."),
]
MemoryTotal = Annotated[str | None, typer.Option(help="Refuse to start if all cubes together may exceed this.")]
Ipv6Prefix = Annotated[int, typer.Option(help="Bits of an IPv6 host: 64 counts /64 prefixes, 128 full addresses.")]
Site = Annotated[str, typer.Option(help="Name of this place, kept in saved sketches.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:all, cuda:0,1 or auto.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Nothing on standard error but errors.")]
