"""The one grammar of `--output`, for all commands, and the list of destinations.

An address is a file, whose ending selects the format (replaced by a run that ends, appended to by one that does not), a
folder of Parquet files (one per window, of a run without an end), `-` (standard output: JSON Lines, or CSV with
`--csv`), either with `?format=ecs` (lines in a format of others, whatever the ending), `scheme:…`, or `@FILE`: the
addresses in a file, one in each line, as they may hold secrets.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from superhosts.core.files import exposure_warning
from superhosts.core.notices import WARNING, Notice
from superhosts.core.text import counted
from superhosts.errors import OutputError, UsageError
from superhosts.output.acts import Acting, Actor, Ledger
from superhosts.output.delivery import Delivery, DeliveryOptions, left_behind
from superhosts.output.destination import RUN_THAT_ENDS, Destination, Destinations, RunKind
from superhosts.output.files import AppendedFile, ParquetFolder, PatientFile, ReplacedFile
from superhosts.output.mappings import FORMATS
from superhosts.output.names import NO_NAMES, Annotator, NamingOptions
from superhosts.output.senders import Sender, masked
from superhosts.output.stdout import BackgroundStdout, Format, StandardOutput
from superhosts.output.streams import ClosedOutput, raw_stream

if TYPE_CHECKING:
    from superhosts.output.alerts.store import AlertDesk

DESTINATIONS: list[type[Destination]] = [ReplacedFile, AppendedFile, ParquetFolder]


# Schemes of senders, with module and class in `senders/`: all of them together would take 0.8 s to load, and some need
# packages that may be missing (MissingExtraError).
SENDERS = {
    "alertmanager+http": "alertmanager:Alertmanager",
    "alertmanager+https": "alertmanager:Alertmanager",
    "apprise": "apprise:Apprise",
    "bgp": "bgp:Bgp",
    "elastic+http": "bulk:Elastic",
    "elastic+https": "bulk:Elastic",
    "exec": "hook:Hook",
    "kafka": "kafka:Kafka",
    "list": "firewall:ListFile",
    "nats": "nats:Nats",
    "nats+tls": "nats:Nats",
    "nft": "firewall:Nft",
    "smtp": "mail:Mail",
    "smtps": "mail:Mail",
    "splunk+http": "bulk:Splunk",
    "splunk+https": "bulk:Splunk",
    "syslog": "syslog:Syslog",
    "syslog+tcp": "syslog:Syslog",
    "syslog+tls": "syslog:Syslog",
    "webhook+http": "webhook:Webhook",
    "webhook+https": "webhook:Webhook",
}
ALERT_TO = "--alert-to"  # the option of destinations of alerts, which alone may act
WITHOUT_SLASHES = ("apprise", "bgp", "exec", "list", "nft")  # a name or a path follows the colon


def load_sender(scheme: str) -> type[Sender]:
    module, _, name = SENDERS[scheme].partition(":")
    found: type[Sender] = getattr(import_module(f"superhosts.output.senders.{module}"), name)
    return found


class Wanted(NamedTuple):
    """An address of `--output`. `private`: it comes from a file, so it may hold secrets."""

    text: str
    private: bool = False


@dataclass(frozen=True)
class OutputOptions:
    json: bool = False
    csv: bool = False
    outputs: Sequence[str] = ()
    delivery: DeliveryOptions = field(default_factory=DeliveryOptions)
    naming: NamingOptions = NO_NAMES
    option: str = "--output"  # which gave the addresses

    def __post_init__(self) -> None:
        if self.json and self.csv:
            raise UsageError("--json and --csv: choose one")
        twice = [text for text, times in Counter(self.outputs).items() if times > 1]
        if twice:
            raise UsageError(f"{self.option} {masked(twice[0])}: given twice")

    @property
    def format(self) -> Format:
        for path, format in map(split_format, self.outputs):
            if path == "-":
                return format or ("csv" if self.csv else "json")
        return "csv" if self.csv else "json" if self.json else "table"

    @property
    def addresses(self) -> list[str]:
        return [text for text in self.outputs if split_format(text)[0] != "-"]

    @contextmanager
    def naming_option(self) -> Iterator[None]:
        """Put the option before what is wrong with one of its addresses."""
        try:
            yield
        except UsageError as error:
            raise UsageError(f"{self.option} {error}") from None


def open_destination(
    address: str, run: RunKind, delivery: DeliveryOptions | None = None, *, private: bool = False
) -> Destination:
    """Open the destination that an address names. `private`: it comes from a file, so it may hold secrets."""
    kind = find_kind(address, run)
    delivery = delivery or DeliveryOptions()
    if issubclass(kind, Sender):
        sender = kind.open(address, private=private)
        if isinstance(sender, Actor):
            return Acting(sender, run, delivery)
        for warning in sender.address.warnings():
            delivery.say(warning)
        return Delivery(sender, run, delivery)
    path, format = split_format(address) if issubclass(kind, AppendedFile | ReplacedFile) else (address, "")
    opened = kind(path, run._replace(format=format, site=delivery.site))
    return PatientFile(opened, Path(path), delivery) if run.endless else opened


def split_format(address: str) -> tuple[str, Any]:
    """Return the path and the format of an address like rows.log?format=cef; no format is an empty text."""
    path, mark, format = address.rpartition("?format=")
    return (path, format) if mark and format in FORMATS else (address, "")


def check_addresses(options: OutputOptions, run: RunKind) -> None:
    """Raise what opening the destinations would, as far as their addresses tell. Nothing is opened."""
    with options.naming_option():
        for wanted in wanted_addresses(options.addresses):
            kind = find_kind(wanted.text, run)
            if issubclass(kind, Sender):
                sender = kind.open(wanted.text, private=wanted.private)
                if isinstance(sender, Actor) and options.option != ALERT_TO:
                    raise sender.address.error(f"acts follow alerts; give it with {ALERT_TO}")
                sender.close()


def find_kind(address: str, run: RunKind) -> type[Sender] | type[Destination]:
    scheme = address.partition(":")[0]
    # Almost anything can be a path, so schemes come first. A file may be called nats:a.csv.
    if scheme in SENDERS and (f"{scheme}://" in address or scheme in WITHOUT_SLASHES):
        return load_sender(scheme)
    path, format = split_format(address)
    if format and "://" not in path:
        if Path(path).suffix.lower() in (".csv", ".parquet"):
            raise UsageError(
                f"{address}: the ending says another format; take another name, like {Path(path).stem}.log"
            )
        return AppendedFile if run.endless else ReplacedFile
    with_scheme = [kind for kind in DESTINATIONS if kind.scheme]
    for kind in with_scheme:
        if kind.recognises(address, run):
            return kind
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", address):
        names = [f"{kind.scheme}:" for kind in with_scheme]
        names += [f"{name}:" if name in WITHOUT_SLASHES else f"{name}://" for name in SENDERS]
        known = ", ".join(sorted(names))
        raise UsageError(f"{masked(address)}: unknown scheme; known schemes: {known}")
    for kind in DESTINATIONS:
        if kind.recognises(address, run):
            return kind
    if scheme in SENDERS:
        raise UsageError(f"{masked(address)}: write {scheme}://…")
    if run.endless and Path(address).suffix.lower() == ".parquet":
        way = "name a folder, which gets a file per window"
        raise UsageError(f"{address}: Parquet cannot be appended to; {way}")
    *most, last = [ending for kind in DESTINATIONS for ending in kind.endings(run)]
    folder = ", or be a folder (Parquet)" if run.endless else ""
    way = f"; or write FILE?format=, with {', '.join(FORMATS)}"
    raise UsageError(f"{address}: the name must end in {', '.join(most)} or {last}{folder}{way}")


def wanted_addresses(addresses: Sequence[str]) -> Iterator[Wanted]:
    """Yield the addresses of `--output`, those in an @FILE one by one. Raise UsageError if that cannot be read."""
    for text in addresses:
        if not text.startswith("@"):
            yield Wanted(text)
            continue
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{text}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
        found = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not found:
            raise UsageError(f"{text}: has no address")
        yield from (Wanted(line, private=True) for line in found)


def open_each(options: OutputOptions, run: RunKind, before: Iterable[Destination] = ()) -> list[Destination]:
    """Open all destinations besides standard output, or none. Those of one name are numbered.

    Destinations that were opened `before`, for the same addresses, are returned as they are.
    """
    run = _with_names(options, run)
    opened: list[Destination] = []
    there = {each.opened_as: each for each in before if each.opened_as is not None}
    names: Counter[str] = Counter()
    delivery = replace(options.delivery)  # with a deadline of its own
    for text in options.addresses:
        if text.startswith("@") and (warning := exposure_warning(Path(text[1:]))):
            delivery.say(warning)
    try:
        with options.naming_option():
            for wanted in wanted_addresses(options.addresses):
                if wanted in there:
                    opened.append(there[wanted])
                    continue
                opened.append(open_destination(wanted.text, run, delivery, private=wanted.private))
                opened[-1].opened_as = wanted
                names[opened[-1].name] += 1
                if (number := names[opened[-1].name]) > 1 and isinstance(opened[-1], Acting):
                    raise UsageError(f"{opened[-1].name}: given twice")
                if number > 1:
                    opened[-1].name += f" ({number})"
    except BaseException:
        for destination in opened:
            if destination not in there.values():
                destination.abandon()
        raise
    return opened


def open_actor(address: str) -> Actor:
    """Return what acts at an address that was taken from a ledger."""
    opened = load_sender(address.partition(":")[0]).open(address, private=True)
    assert isinstance(opened, Actor)
    return opened


def withdraw_left_behind(delivery: DeliveryOptions, opened: Iterable[Destination]) -> list[Destination]:
    """Return destinations that withdraw what the ledger has of those that no run names any more."""
    if delivery.ledger is None or not delivery.ledger.exists():
        return []
    used = {each.place for each in opened if isinstance(each, Acting)}
    with closing(Ledger.held(delivery.ledger)) as ledger:
        left = {act.place: act.address for act in ledger.acts() if act.place not in used}
        found: list[Destination] = []
        for address in left.values():
            try:
                found.append(Acting(open_actor(address), RUN_THAT_ENDS, delivery, retired=True))
            except UsageError as error:  # Its program is not there any more.
                delivery.say(Notice(f"acts are NOT WITHDRAWN: {error}", "not-withdrawn", WARNING))
        return found


def tell_left_behind(delivery: DeliveryOptions, opened: Iterable[Destination]) -> None:
    """Tell which reports wait for none of all destinations that a run has opened, with those of alerts."""
    if delivery.queue is None:
        return
    used = {each.folder for each in opened if isinstance(each, Delivery) and each.folder is not None}
    for folder, count in left_behind(delivery.queue, used).items():
        text = f"{counted(count, 'report')} for a destination that is not named any more"
        delivery.say(f"{folder}: {text}; remove this folder to forget them")


def _with_names(options: OutputOptions, run: RunKind) -> RunKind:
    return run._replace(columns=(*run.columns, *names)) if (names := options.naming.columns) else run


def open_destinations(
    options: OutputOptions,
    run: RunKind = RUN_THAT_ENDS,
    *,
    table: bool = True,
    say: Callable[[str], None] | None = None,
    desk: AlertDesk | None = None,
) -> Destinations:
    """Open everything that a user asked for; `desk`, which is open, is one more destination.

    Without `table` standard output gets rows only in the formats for programs. With `say`, which gets warnings,
    standard output is written in the background and never blocks the run.
    """
    opened: list[Destination] = []
    wanted = table or options.format != "table"
    if wanted and isinstance(sys.stdout, ClosedOutput):
        if not options.addresses:
            raise OutputError("standard output is closed; write results to a file with --output")
        wanted = False
    opened += open_each(options, run)
    tell_left_behind(options.delivery, [*opened, *(desk.receivers() if desk is not None else ())])
    run = _with_names(options, run)._replace(site=options.delivery.site)
    if wanted and say is None:
        stdout = StandardOutput(options.format, run)
        stdout.outlives_reader |= bool(opened)
        opened.append(stdout)
    elif wanted:
        assert say is not None
        stream = raw_stream(sys.stdout)
        opened.append(BackgroundStdout(StandardOutput(options.format, run, stream=stream, say=say), say))
    if desk is not None:
        opened.append(desk)
    return Destinations(opened, Annotator(options.naming, options.delivery.say) if options.naming else None)
