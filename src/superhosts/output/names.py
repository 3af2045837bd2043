"""Names of hosts: what is known of a host besides its traffic, added to the rows of reports.

A label of the operator's own (`Inventory`), the network and the country (`MaxMind`), the name by reverse DNS
(`ReverseNames`). `Annotator` adds all of these to rows. Nothing here changes which hosts are found, or waits for a
network longer than a moment.
"""

from __future__ import annotations

import csv
import ipaddress
import socket
import threading
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from superhosts.core.pairs import Network, without_port
from superhosts.core.text import counted, printable
from superhosts.errors import UsageError
from superhosts.output.report import GEO_COLUMNS, LazyRows, Row


class NamingOptions(NamedTuple):
    labels: Path | None = None
    geo: Sequence[Path] = ()
    names: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        names = (("label",) if self.labels else ()) + (("name",) if self.names else ())
        return names + (GEO_COLUMNS if self.geo else ())

    def __bool__(self) -> bool:
        return bool(self.labels or self.geo or self.names)


NO_NAMES = NamingOptions()


class Annotator:
    """Adds to rows what is known of their hosts. Fields that are not known are null."""

    def __init__(self, options: NamingOptions, warn: Callable[[str], None] = lambda _: None) -> None:
        self._options, self._warn = options, warn
        self._names = ReverseNames() if options.names else None
        self._inventory: Inventory | None = None
        self._geo: list[MaxMind] = []
        self.reload()

    def reload(self) -> None:
        """Read the files again. If one cannot be read (UsageError), all stay as they are."""
        inventory = Inventory(self._options.labels, self._warn) if self._options.labels else None
        geo = [MaxMind(path) for path in self._options.geo]
        self._inventory, self._geo = inventory, geo  # The old files close when nobody reads them any more.

    def annotated(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return rows with more fields, each made when it is read."""
        if self._names is not None:
            self._names.expect([network for row in rows if (network := network_of(row["host"])) is not None])

        def annotate(number: int) -> Row:
            row = rows[number]
            return {**row, **self.fields(row["host"])}

        return LazyRows(len(rows), annotate)

    def fields(self, host: Any) -> Row:
        network = network_of(host)
        found: Row = dict.fromkeys(self._options.columns)
        if network is None:
            return found
        if self._inventory is not None:
            found["label"] = self._inventory.label(network)
        if self._names is not None:
            found["name"] = self._names.name(network)
        for file in self._geo:
            found |= file.fields(network)
        return found


def network_of(host: object) -> Network | None:
    """Return the address or prefix of a host; None if hosts are generic keys."""
    try:
        return ipaddress.ip_network(without_port(str(host)), strict=False)
    except (ValueError, UsageError):
        return None


PREFIXES: Final = ("prefix", "network", "cidr", "subnet", "address", "ip", "host")
LABELS: Final = ("label", "name", "description", "hostname", "role")
MOST_LABEL: Final = 200  # characters that are kept
MOST_LINES: Final = 2_000_000
BITS: Final = {4: 32, 6: 128}
SUBNET: Final = {4: 24, 6: 64}  # bits of the largest prefix that is named after an address in it


class Inventory:
    """Labels of addresses and prefixes, from a CSV file: the most specific one decides.

        prefix,label
        10.1.0.0/16,office
        10.1.2.3,mail gateway

    A first line with names of columns is recognised by the names, in any order, among others; without one, the first
    two columns count. Lines that begin with # are comments.

    A host that is a prefix has the label of that prefix; else of an address in it, because an IPv6 host is a /64 and
    inventories name addresses; else of the longest prefix around it. Of prefixes that are larger than a subnet, one
    address says nothing.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = lambda _: None) -> None:
        """Read a file. Raise UsageError, which names the line, if it is no such list, or an empty one."""
        self.path = path
        self._nameless: list[int] = []  # lines without a label
        if path.exists() and not path.is_file():
            raise UsageError(f"--labels {path}: not a plain file")
        # address family → prefix length, longest first → number of the prefix → label
        self._labels: dict[int, dict[int, dict[int, str]]] = {4: {}, 6: {}}
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                self._read(file)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--labels {path}: cannot be read: {reason}") from None
        if not any(self._labels.values()):
            raise UsageError(f"--labels {path}: has no labels; lines are like 10.1.0.0/16,office")
        if self._nameless:
            others = counted(len(self._nameless) - 1, "other line")
            more = f" (and {others})" if len(self._nameless) > 1 else ""
            warn(f"--labels {path}: line {self._nameless[0]}{more}: no label; left out")
        self._addresses = {family: sorted(lengths.get(BITS[family], ())) for family, lengths in self._labels.items()}
        for family, lengths in self._labels.items():
            self._labels[family] = dict(sorted(lengths.items(), reverse=True))

    def _read(self, file: Iterable[str]) -> None:
        places: tuple[int, int] | None = None
        begins = True  # A quoted label may go on in the next line, which is not a comment then.

        def without_comments() -> Iterator[str]:
            nonlocal begins
            for text in file:
                is_comment, begins = begins and text.lstrip().startswith("#"), False
                yield "" if is_comment else text

        lines = csv.reader(without_comments())
        for line in lines:
            begins = True
            if not any(cell.strip() for cell in line):
                continue
            if places is None:
                places = _places(line)
                if places is not None:
                    continue
                places = 0, 1
            if lines.line_num > MOST_LINES:
                raise UsageError(f"--labels {self.path}: has more than {MOST_LINES:,} lines")
            self._add(line, places, lines.line_num)

    def _add(self, line: list[str], places: tuple[int, int], number: int) -> None:
        where = f"--labels {self.path}: line {number}"
        if len(line) <= max(places):
            raise UsageError(f"{where}: a prefix and a label are needed, like 10.1.0.0/16,office")
        text, label = line[places[0]].strip(), line[places[1]].strip()
        try:
            network = ipaddress.ip_network(text, strict=False)
        except ValueError:
            raise UsageError(f"{where}: {printable(text)!r} is neither an address nor a prefix") from None
        if not label:
            self._nameless.append(number)
            return
        numbers = self._labels[network.version].setdefault(network.prefixlen, {})
        numbers[int(network.network_address)] = label[:MOST_LABEL]

    def label(self, host: Network) -> str | None:
        number, bits, known = int(host.network_address), host.max_prefixlen, self._labels[host.version]
        inside = known.get(host.prefixlen, {}).get(number) or self._inside(host)
        if inside is not None:
            return inside
        for length, labels in known.items():
            if length < host.prefixlen and (found := labels.get(number >> (bits - length) << (bits - length))):
                return found
        return None

    def _inside(self, host: Network) -> str | None:
        """Return the label of the address with a label that a prefix has; if there are several, of the first one."""
        if host.prefixlen < SUBNET[host.version]:
            return None
        addresses = self._addresses[host.version]
        first = bisect_left(addresses, int(host.network_address))
        count = bisect_left(addresses, int(host.broadcast_address) + 1) - first
        if not count:
            return None
        label = self._labels[host.version][host.max_prefixlen][addresses[first]]
        return label if count == 1 else f"{label} and {count - 1:,} more"


def _places(names: list[str]) -> tuple[int, int] | None:
    known = [name.strip().lower() for name in names]
    places = [next((known.index(name) for name in wanted if name in known), None) for wanted in (PREFIXES, LABELS)]
    return None if places[0] is None or places[1] is None else (places[0], places[1])


class MaxMind:
    def __init__(self, path: Path) -> None:
        try:
            import maxminddb
        except ImportError:
            raise UsageError(f"--geo {path}: needs a package: pip install 'superhosts[geo]'") from None
        try:
            self._file = maxminddb.open_database(path)
        except (OSError, maxminddb.InvalidDatabaseError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--geo {path}: cannot be read: {reason}") from None

    def fields(self, host: Network) -> dict[str, Any]:
        """Return what the file knows of a host: asn, as_name, country. A prefix is known by its first address."""
        try:
            found = self._file.get(host.network_address)
        except (ValueError, RuntimeError):  # an IPv6 address, and the file has IPv4 only; or it is damaged there
            return {}
        return _fields(found) if isinstance(found, dict) else {}


def _fields(found: dict[str, Any]) -> dict[str, Any]:
    """Return what a record says. Publishers name the same things differently."""
    fields: dict[str, Any] = {}
    number = found.get("autonomous_system_number", found.get("asn"))
    if isinstance(number, str):
        number = number.upper().removeprefix("AS")
    if isinstance(number, int) or (isinstance(number, str) and number.isascii() and number.isdigit()):
        fields["asn"] = int(number)
    name = found.get("autonomous_system_organization", found.get("as_name", found.get("name")))
    if isinstance(name, str) and name:
        fields["as_name"] = name
    country = found.get("country", found.get("country_code"))
    if isinstance(country, dict):
        country = country.get("iso_code")
    if isinstance(country, str) and len(country) == 2:
        fields["country"] = country
    return fields


THREADS: Final = 8
KEPT: Final = 1 << 16  # names
KEPT_SECONDS: Final = 3600.0
WAIT: Final = 1.0  # seconds for the hosts of one report
PATIENCE: Final = 5.0  # seconds for several reports in a row
REGAINED: Final = 0.1  # seconds of patience that come back in a second
MOST_NAME: Final = 253  # characters

Look = Callable[[str], str | None]


def look_up(address: str) -> str | None:
    """Return the name of an address by the system's resolver; None if it has none."""
    try:
        name = socket.gethostbyaddr(address)[0]
    except (OSError, UnicodeError):
        return None
    return name[:MOST_NAME] if name != address else None


class ReverseNames:
    """Names of addresses by reverse DNS, looked up by a few threads in the background. Any thread may ask.

    A row gets the name that is known when it is written. A report waits for the names of its new hosts, up to a second.
    All reports together wait for no more than five seconds and a tenth of the time that passes: a slow or dead name
    server delays nobody by more, and a service that runs for days still waits for the names of each report. Names and
    failures are kept for an hour, the last 65,536 of them.
    """

    def __init__(self, look: Look = look_up, clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._clock = look, clock
        self._known: OrderedDict[str, tuple[float, Future[str | None]]] = OrderedDict()
        self._asked: SimpleQueue[tuple[str, Future[str | None]]] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._patience, self._counted = PATIENCE, clock()  # seconds, and when they were counted

    def expect(self, hosts: list[Network]) -> None:
        """Begin to look for the names of hosts, and wait for them for a moment."""
        fresh = [future for host in hosts if (future := self._begin(host)) is not None]
        now = self._clock()
        self._patience = min(self._patience + REGAINED * (now - self._counted), PATIENCE)
        self._counted = now
        patience = min(WAIT, self._patience)
        if not fresh or patience <= 0:
            return
        wait(fresh, timeout=patience)
        self._counted = self._clock()
        self._patience -= self._counted - now

    def name(self, host: Network) -> str | None:
        """Return the name of a host if it is known by now. A prefix has none."""
        if host.num_addresses != 1:
            return None
        with self._lock:  # or it may be forgotten meanwhile
            known = self._known.get(str(host.network_address))
            return known[1].result() if known is not None and known[1].done() else None

    def _begin(self, host: Network) -> Future[str | None] | None:
        """Begin to look for the name of a host; return None if that was done before."""
        address = str(host.network_address)
        with self._lock:
            known = self._known.get(address)
            if host.num_addresses != 1 or (known is not None and self._clock() - known[0] < KEPT_SECONDS):
                return None
            future: Future[str | None] = Future()
            self._known[address] = self._clock(), future
            self._known.move_to_end(address)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)[1][1].cancel()
            self._asked.put((address, future))
            if len(self._threads) < THREADS:  # daemons: the process does not wait for a dead name server when it ends
                self._threads.append(threading.Thread(target=self._answer, name="reverse dns", daemon=True))
                self._threads[-1].start()
            return future

    def _answer(self) -> None:
        while True:
            address, future = self._asked.get()
            if future.set_running_or_notify_cancel():
                future.set_result(self._look(address))
