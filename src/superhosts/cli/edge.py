"""`superhosts edge`: a sensor that sends one sketch per window to a hub."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from superhosts.cli._options import (
    INPUT_HELP,
    Device,
    Direction,
    Exclude,
    GeometryText,
    Inner,
    Ipv6Prefix,
    Memory,
    MemoryTotal,
    Watch,
)
from superhosts.cli._outputs import KeyFile, fail_with, log_in_background, log_status, read_key
from superhosts.cli._service import (
    Creds,
    Nkey,
    SpoolCap,
    Status,
    TlsCa,
    TlsCert,
    TlsKey,
    ended_by_signals,
    make_sender,
    nats_options,
    refuse_given,
    seconds,
    sending,
    tell,
)

if TYPE_CHECKING:
    from superhosts.errors import SuperhostsError
    from superhosts.fleet.edge import Edge
    from superhosts.fleet.link import Sender
    from superhosts.fleet.spool import Spool
    from superhosts.pipeline.scan import Counters
    from superhosts.pipeline.settings import Settings

LOCAL = "nats://127.0.0.1:4222"
MOMENT = 10.0  # seconds that an edge waits for the hub when a live input has ended


@log_in_background()
def edge(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help=f"{INPUT_HELP} A folder is followed: a capture program rotates files in it. Without any, only what "
            "waits in the spool is sent.",
        ),
    ] = [],  # noqa: B006
    site: Annotated[str, typer.Option(help="Name of this place, unique in the fleet; it must be given.")] = "",
    spool: Annotated[
        Path, typer.Option(metavar="DIR", help="Where sketches wait until the hub has acknowledged them.")
    ] = Path("superhosts-spool"),
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Send by files: a folder that the hub reads (hub --from).")
    ] = None,
    nats: Annotated[str | None, typer.Option(metavar="URL", help="Send to a NATS server.", show_default=LOCAL)] = None,
    nkey: Nkey = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    spool_cap: SpoolCap = "10GiB",
    window: Annotated[str, typer.Option("--window", "-w", help="Length of a window; the same at all sites.")] = "5m",
    grace: Annotated[
        str, typer.Option(help="Time that a live input may lag behind the clock before its window closes.")
    ] = "10s",
    inner: Inner = [],  # noqa: B006
    exclude: Exclude = [],  # noqa: B006
    watch: Watch = ["inner"],  # noqa: B006
    direction: Direction = ["any"],  # noqa: B006
    detector: Annotated[str, typer.Option(help="cube, cbaa or another whose sketches merge.")] = "cube",
    memory: Memory = "128MiB",
    geometry: GeometryText = "",
    memory_total: MemoryTotal = None,
    ipv6_prefix: Ipv6Prefix = 64,
    key_file: KeyFile = None,
    device: Device = "auto",
) -> None:
    """Watch traffic at one place and send the sketch of every window to a hub. No address leaves the site in the clear.

    What the hub has not acknowledged stays in the spool. Key, window, memory (or geometry) and detector must be the
    hub's.

    Examples: superhosts edge /var/captures --site ams --inner 10.0.0.0/8 --to /mnt/fleet ·
    tcpdump -U -w - | superhosts edge - --site ams --nats tls://hub:4222 --nkey ams.nk
    """
    from superhosts.durable import hold_folder
    from superhosts.errors import RefusedError, UsageError
    from superhosts.fleet.edge import check_settings
    from superhosts.fleet.parcels import check_site
    from superhosts.fleet.spool import Spool
    from superhosts.pipeline.settings import Settings
    from superhosts.units import parse_size

    check_site(site)
    if to is not None and nats is not None:
        raise UsageError("--to and --nats: choose one way to the hub")
    if to is not None:
        proofs = {"--nkey": nkey, "--creds": creds, "--tls-ca": tls_ca, "--tls-cert": tls_cert, "--tls-key": tls_key}
        refuse_given(proofs, "not with --to, where there is no server")
    url = LOCAL if nats is None else nats
    options = None if to is not None else nats_options(url, creds, nkey, (tls_ca, tls_cert, tls_key))
    settings = check_settings(
        Settings(
            inner=inner,
            exclude=exclude,
            watch=watch,
            direction=direction,
            window=window,
            detector=detector,
            memory=memory,
            geometry=geometry,
            memory_total=memory_total,
            ipv6_prefix=ipv6_prefix,
            key=read_key(key_file),
            site=site,
            device=device,
        )
    )
    with hold_folder(spool):
        store = Spool(spool, site, cap=parse_size(spool_cap), say=tell)
        errors = _watch(inputs, settings, store, make_sender(to, options, site), seconds("grace", grace))
    if refused := store.counters.refused:
        errors.append(RefusedError(f"{refused} {'window was' if refused == 1 else 'windows were'} refused by the hub"))
        tell(f"{errors[-1]}; they are kept in {spool / 'refused'}")
    fail_with(errors)


def _watch(inputs: list[str], settings: Settings, spool: Spool, sender: Sender, grace: float) -> list[SuperhostsError]:
    """Read the inputs into the spool and send from there; return the inputs' errors, all said already."""
    from superhosts.cli.scan import summarise
    from superhosts.fleet.edge import Edge
    from superhosts.fleet.position import POSITION, Position
    from superhosts.pipeline.scan import RunOptions, Scan
    from superhosts.sources.opening import open_inputs
    from superhosts.times import iso_time

    errors: list[SuperhostsError] = []

    def on_error(error: SuperhostsError) -> None:
        if len(errors) < 100:  # one is enough for the exit status; a folder is followed for months
            errors.append(error)
        tell(str(error))

    def on_progress(*_: int) -> None:
        run.on_progress()
        status.write()

    position = Position(spool.folder, inputs, settings.fingerprint, tell)
    scan = Scan(
        open_inputs(
            inputs,
            on_error,
            follow=True,
            done=position.done(),
            on_warning=lambda text: tell(f"warning: {text}"),
        ),
        settings,
        RunOptions(grace=grace, resume_from=position.frontier, find=False),
        on_error=on_error,
        on_progress=on_progress,
    )
    run = Edge(scan, spool, position, tell)
    status = Status(
        spool.folder / "status.json",
        scan=lambda: _last_warnings(scan.counters),
        edge=run.counters,
        spool=spool.counters,
        link=sender.counters,
        waiting=lambda: len(spool.waiting()),
        aside=spool.aside,
        standard_error=log_status,
    )
    with sending(sender, spool), ended_by_signals(run.stop):
        tell(f"site {settings.site} ready; windows of earlier runs that wait in {spool.folder}: {len(spool.waiting())}")
        if position.frontier is not None:
            before = f"what was before is in the spool or sent ({spool.folder / POSITION})"
            tell(f"goes on at {iso_time(position.frontier)}: {before}")
        run.run()
        summarise(replace(scan.counters, warnings=[]))  # which were said as they came
        _deliver(run, spool, status, patient=all(source.replays for source in scan.sources))
    status.write(now=True)
    return errors


def _deliver(run: Edge, spool: Spool, status: Status, *, patient: bool) -> None:
    """Wait until the hub has everything, or until told to stop; behind a live input only for a moment.

    Whoever started an edge on a pipe wants it started again when that ends; the next run sends what waits.
    """
    left = len(spool.waiting())
    until = time.monotonic() + (float("inf") if patient else MOMENT)
    if left and not run.stopping.is_set():
        tell(f"the input has ended; windows that wait for the hub: {left} (Ctrl-C leaves them in the spool)")
    while not run.stopping.is_set() and spool.waiting() and time.monotonic() < until:
        with spool.changed:
            spool.changed.wait(0.5)
        status.write()
    with spool.changed:
        left, counters = len(spool.waiting()), spool.counters
    tell(f"windows: {counters.spooled} spooled, {counters.delivered} acknowledged by the hub, {left} in the spool")


def _last_warnings(counters: Counters) -> dict[str, Any]:
    """Return the counters with the last few warnings: a folder of odd files has very many."""
    return {**vars(counters), "warnings": counters.warnings[-20:]}
