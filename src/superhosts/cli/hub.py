"""`superhosts hub`: merges the sketches of all sites and reports the super hosts of every window."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from superhosts.cli._options import GeometryText, Ipv6Prefix, Memory
from superhosts.cli._outputs import (
    CsvFlag,
    Json,
    KeyFile,
    Output,
    Threshold,
    Top,
    log_in_background,
    log_status,
    read_key,
)
from superhosts.cli._service import (
    Creds,
    Nkey,
    SpoolCap,
    Status,
    TlsCa,
    TlsCert,
    TlsKey,
    beside,
    ended_by_signals,
    make_sender,
    nats_options,
    refuse_given,
    seconds,
    sending,
    sighup_held,
    tell,
)
from superhosts.cli._signals import set_safely

if TYPE_CHECKING:
    from superhosts.fleet.hub import HubReport
    from superhosts.fleet.link import Receiver
    from superhosts.fleet.nats.broker import Broker
    from superhosts.pipeline.settings import Settings

LISTEN = "127.0.0.1:4222"
BROKER_CAP = "4GiB"


@sighup_held()
@log_in_background()
def hub(
    state: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the hub keeps its windows, and the broker its store.")
    ] = Path("superhosts-hub"),
    sites: Annotated[
        str | None, typer.Option(help="Sites to wait for, like ams,fra,nyc; else those of the last 12 windows.")
    ] = None,
    grace: Annotated[str, typer.Option(help="Longest wait for missing sites after a window's first sketch.")] = "60s",
    late: Annotated[
        str, typer.Option(help="How long a late sketch still re-opens its window (longer with --archive).")
    ] = "1d",
    threshold: Threshold = None,
    top: Top = None,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the embedded broker listens.", show_default=LISTEN)
    ] = None,
    nats: Annotated[
        str | None, typer.Option(metavar="URL", help="Use your own NATS server or cluster instead of the embedded one.")
    ] = None,
    from_folder: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Take sketches from a folder (edge --to); no broker.")
    ] = None,
    enroll: Annotated[
        str | None, typer.Option(metavar="SITE", help="Make (or replace) the key of a site, print its file, and end.")
    ] = None,
    revoke: Annotated[
        str | None, typer.Option(metavar="SITE", help="Forget the key of a site, which is turned away then, and end.")
    ] = None,
    nkey: Nkey = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    broker_cap: Annotated[
        str | None,
        typer.Option(
            help="Most disk for sketches on their way: in the embedded broker, or in the stream at your own server.",
            show_default=BROKER_CAP,
        ),
    ] = None,
    archive: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep every window's union there.")] = None,
    archive_sites: Annotated[bool, typer.Option("--archive-sites", help="Keep every site's own sketch, too.")] = False,
    keep: Annotated[str, typer.Option(help="How long archived sketches are kept.")] = "90d",
    site: Annotated[str, typer.Option(help="This hub's name: in the archive, and as a site of a higher hub.")] = "hub",
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Be an edge of a higher hub: send unions to a folder.")
    ] = None,
    up: Annotated[
        str | None, typer.Option(metavar="URL", help="Be an edge of a higher hub: send unions to its NATS server.")
    ] = None,
    up_nkey: Annotated[
        Path | None, typer.Option(metavar="FILE", help="This hub's nkey seed at the higher hub.")
    ] = None,
    up_ca: Annotated[Path | None, typer.Option(metavar="FILE", help="Like --tls-ca, towards the higher hub.")] = None,
    up_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Like --tls-cert.")] = None,
    up_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Like --tls-key.")] = None,
    spool_cap: SpoolCap = "10GiB",
    detector: Annotated[str, typer.Option(help="The edges' detector.")] = "cube",
    memory: Memory = "128MiB",
    geometry: GeometryText = "",
    ipv6_prefix: Ipv6Prefix = 64,
    key_file: KeyFile = None,
    json: Json = False,
    csv: CsvFlag = False,
    output: Output = None,
) -> None:
    """Merge the sketches of all edges, window by window, and report the super hosts of the whole network.

    Starts its own NATS server unless --nats or --from is given. A late sketch re-opens its window: the rows come
    again with a higher revision. Memory, detector and key must be those of the edges.

    Examples: superhosts hub --sites ams,fra,nyc --json · superhosts hub --enroll ams ·
    superhosts hub --listen 0.0.0.0:4222 --tls-cert hub.crt --tls-key hub.key --archive archive --keep 90d
    """
    if enroll is not None or revoke is not None:
        _change_sites(state, enroll, revoke)
        return
    from superhosts.durable import hold_folder
    from superhosts.errors import UsageError
    from superhosts.fleet.archive import Archive
    from superhosts.fleet.edge import check_settings
    from superhosts.fleet.hub import Hub, HubSettings
    from superhosts.fleet.intake import Desk, expected_kinds
    from superhosts.fleet.parcels import check_site
    from superhosts.fleet.spool import Spool
    from superhosts.fleet.store import Store
    from superhosts.pipeline.settings import Settings
    from superhosts.reports.base import RunKind
    from superhosts.reports.opening import OutputOptions, open_destinations
    from superhosts.reports.rows import HUB_COLUMNS
    from superhosts.units import parse_size

    wanted = OutputOptions(json, csv, output)
    way_in = _WayIn(from_folder, nats, listen, broker_cap, nkey, creds, tls_ca, tls_cert, tls_key)
    way_in.check()
    if to is not None and up is not None:
        raise UsageError("--to and --up: choose one way to the higher hub")
    if up is None:
        proofs = {"--up-nkey": up_nkey, "--up-ca": up_ca, "--up-cert": up_cert, "--up-key": up_key}
        refuse_given(proofs, "only with --up")
    if archive_sites and archive is None:
        raise UsageError("--archive-sites needs --archive DIR")
    key = read_key(key_file)
    traffic = check_settings(
        Settings(
            detector=detector,
            memory=memory,
            geometry=geometry,
            ipv6_prefix=ipv6_prefix,
            key=key,
            threshold=threshold,
            top=top,
        )
    )
    settings = HubSettings(
        threshold=traffic.least_peers,
        top=top,
        sites=tuple(check_site(name.strip(), "--sites") for name in sites.split(",")) if sites else (),
        grace=seconds("grace", grace),
        late=seconds("late", late),
        key=key,
    )
    check_site(site)
    kept = (
        Archive(archive, keep=seconds("keep", keep), site=site, with_sites=archive_sites, key=key, say=tell)
        if archive is not None
        else None
    )
    way_up = nats_options(up, None, up_nkey, (up_ca, up_cert, up_key), up=True) if up is not None else None
    stop = threading.Event()
    with contextlib.ExitStack() as parts:
        parts.enter_context(hold_folder(state))
        store = Store(state, tell)
        desk = Desk(store, expected_kinds(traffic), tell, archive=kept)
        upstream = Spool(state / "up", site, cap=parse_size(spool_cap), say=tell) if to or way_up else None
        outputs = open_destinations(wanted, RunKind(HUB_COLUMNS, endless=True), say=tell)
        parts.enter_context(outputs)
        reloads = _Reloads()
        parts.enter_context(ended_by_signals(lambda: set_safely(stop), reloads.ask))
        reloads.add("--output", outputs.reopen)
        receiver, extra = _open_way_in(parts, state, way_in, traffic, reloads)
        desk.senders = lambda: {*settings.sites, *receiver.senders()}
        if upstream is not None:
            parts.enter_context(sending(make_sender(to, way_up, site), upstream))
            extra["upstream"] = upstream.counters
        if (address := wanted.address) is not None:
            extra["output"] = lambda: outputs.status(address)

        def report(result: HubReport) -> None:
            title = _title(result, settings.threshold, top)
            outputs.write(replace(result, title=title))
            if wanted.format != "table":  # rows alone do not tell of windows without a host, nor who is missing there
                tell(title)

        merging = Hub(store, desk, settings, report, tell, archive=kept, upstream=upstream)
        status = Status(
            state / "status.json",
            hub=merging.counters,
            desk=desk.counters,
            link=receiver.counters,
            windows=lambda: len(store.windows()),
            trouble=lambda: {**merging.status(), "not_reloaded": reloads.failed},
            standard_output=lambda: outputs.status("standard output"),
            standard_error=log_status,
            **extra,
        )

        def on_turn() -> None:
            reloads.look()
            status.write()

        whom = ", ".join(settings.sites) if settings.sites else "the sites of the last windows"
        waits = f"waits for {whom}, at most {grace} after a window's first sketch"
        if receiver.counters.down:
            tell(f"hub started; the link does not work yet; {waits}")

        def receive() -> None:
            receiver.run(desk, stop, lambda: tell(f"hub ready; {waits}"))

        parts.enter_context(beside("receive", receive, stop))
        merging.run(stop, on_turn=on_turn)
        status.write(now=True)
    counters = merging.counters
    tell(f"{desk.counters.accepted} sketches, {counters.reports} reports ({counters.revisions} of them revisions)")


class _Reloads:
    """What SIGHUP asks for: done by the hub's own loop, since little is safe in a signal's handler."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}  # what the last reload did not change, and why
        self._asked = False
        self._parts: dict[str, Callable[[], None]] = {}

    def add(self, name: str, work: Callable[[], None]) -> None:
        """Have something done at each reload."""
        self._parts[name] = work

    def ask(self) -> None:
        """Note that a reload is wanted."""
        self._asked = True

    def look(self) -> None:
        """Reload if that was asked for; what fails stays as it was."""
        if not self._asked:
            return
        self._asked = False
        from superhosts.errors import SuperhostsError

        done: list[str] = []
        self.failed = {}
        for name, work in self._parts.items():
            try:
                work()
                done.append(name)
            except (SuperhostsError, OSError) as error:
                self.failed[name] = str(error)
                tell(f"NOT RELOADED: {name}: {error}")
        if done:
            tell(f"reloaded: {', '.join(done)}")


def _change_sites(state: Path, new: str | None, old: str | None) -> None:
    """Enroll or revoke a site; a hub that runs notices it by itself."""
    from superhosts.fleet.nats.enrolment import enroll, unenroll

    if old is not None:
        unenroll(state / "broker", old)
        tell(f"{old} is revoked")
    if new is not None:
        print(enroll(state / "broker", new))
        tell(f"take this file to the edge and start it with --site {new} --nkey {new}.nk")


class _WayIn(NamedTuple):
    """Where the sketches come from, as the options say."""

    folder: Path | None
    url: str | None
    listen: str | None
    cap: str | None
    nkey: Path | None
    creds: Path | None
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None

    def check(self) -> None:
        """Refuse options that would do nothing, and those that miss others."""
        from superhosts.errors import UsageError

        proofs = {"--nkey": self.nkey, "--creds": self.creds}
        tls = {"--tls-ca": self.tls_ca, "--tls-cert": self.tls_cert, "--tls-key": self.tls_key}
        if self.folder is not None:
            others = {"--nats": self.url, "--listen": self.listen, "--broker-cap": self.cap}
            refuse_given({**others, **proofs, **tls}, "not with --from, where there is no server")
        elif self.url is not None:
            refuse_given({"--listen": self.listen}, "not with --nats: your own server listens where you told it to")
        else:
            refuse_given(proofs, "for your own server (--nats); the embedded broker has its own key")
            if (self.tls_cert is None) != (self.tls_key is None) or (self.tls_ca and not self.tls_cert):
                raise UsageError(
                    "TLS of the embedded broker takes --tls-cert and --tls-key, and --tls-ca for mutual TLS"
                )


def _open_way_in(
    parts: contextlib.ExitStack, state: Path, way: _WayIn, traffic: Settings, reloads: _Reloads
) -> tuple[Receiver, dict[str, Any]]:
    """Return the hub's side of the link, and the counters that it has beside its own."""
    if way.folder is not None:
        from superhosts.fleet.files import FileReceiver

        return FileReceiver(way.folder, tell, largest=largest_sketch(traffic)), {}
    from superhosts.errors import UsageError
    from superhosts.fleet.nats.identity import own_identity
    from superhosts.fleet.nats.receive import NatsReceiver
    from superhosts.units import parse_size

    cap = parse_size(BROKER_CAP if way.cap is None else way.cap)
    owner, largest = own_identity(state), largest_sketch(traffic)
    if way.url is not None:
        options = nats_options(way.url, way.creds, way.nkey, (way.tls_ca, way.tls_cert, way.tls_key))
        receiver = NatsReceiver(options, tell, owner=owner, cap=cap, largest=largest)
        receiver.check_alone()
        return receiver, {}
    owner = owner._replace(host="")  # its store is in the state folder: the same hub, whatever its container's name
    broker = _start_broker(parts, state / "broker", way, cap)
    receiver = NatsReceiver(broker.options, tell, owner=owner, cap=cap, largest=largest, admitted=broker.admitted)
    if reason := broker.unreachable():
        receiver.counters.down = reason
        tell(f"NOT READY: the broker runs, but this hub cannot reach it: {reason}; trying again until it can")

    def reload() -> None:
        broker.reload()
        receiver.note_reach(broker.unreachable())
        if receiver.counters.down:
            raise UsageError(f"a new connection to the broker does not work: {receiver.counters.down}")

    reloads.add("sites and certificates", reload)
    return receiver, {"broker": broker.counters}


def _start_broker(parts: contextlib.ExitStack, folder: Path, way: _WayIn, cap: int) -> Broker:
    """Start a broker of our own."""
    from superhosts.fleet.nats.broker import Broker
    from superhosts.fleet.nats.setup import Tls

    tls = Tls(way.tls_cert, way.tls_key, way.tls_ca) if way.tls_cert is not None and way.tls_key is not None else None
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # as in nats_options
    listen = LISTEN if way.listen is None else way.listen
    broker = parts.enter_context(Broker(folder, tell, listen=listen, cap=cap, tls=tls))
    tell(f"broker ready at {broker.options.url}")
    if not broker.guarded:
        tell("no site is enrolled: anybody on this machine may speak for any site (superhosts hub --enroll SITE)")
    return broker


def largest_sketch(traffic: Settings) -> int:
    """Return the bytes that a sketch can have in a file: all sides and directions, in cubes that do not compress."""
    from superhosts.cubefile.container import SITE_HEADER
    from superhosts.pipeline.settings import DIRECTIONS, SIDES

    families = len({part.family for part in traffic.parts})
    raw = families * len(SIDES) * len(DIRECTIONS) * traffic.cube_memory
    return raw + raw // 64 + SITE_HEADER  # what cannot be compressed grows by less than a 64th


def _title(result: HubReport, least: float | None, top: int | None) -> str:
    from superhosts.reports.titles import window_title

    title = window_title(result.window, least, top, len(result.rows))
    again = f", revision {result.revision}" if result.revision > 1 else ""
    return f"{title} ({result.attendance}{again})"
