"""The options of a scan: which hosts to look for, and with which detector."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from superhosts.core import defaults
from superhosts.core.device import thread_count
from superhosts.core.fields import NAME_RULE, is_name
from superhosts.core.hashing import make_key, secret_of
from superhosts.core.lens import Lens, parse_ports, parse_protocols
from superhosts.core.pairs import (
    CONTACTS,
    COUNTS,
    DIRECTIONS,
    MOST_FILTER,
    MOST_GROUPS,
    PORT_BITS,
    SIDES,
    HostFormat,
    Part,
)
from superhosts.core.results import Selection
from superhosts.core.text import counted, either, named, option, printable, setting
from superhosts.core.units import format_duration, format_size, parse_duration, parse_size
from superhosts.cubefile.header import LEAST_EVIDENCE, MOST_EVIDENCE
from superhosts.detectors.arguments import check_count, check_exact, check_threshold, starts_exact
from superhosts.detectors.cube import Cube, Geometry
from superhosts.detectors.detector import Detector
from superhosts.detectors.exact import Exact
from superhosts.detectors.registry import DETECTORS, MERGED
from superhosts.detectors.stream import Stream
from superhosts.errors import GeometryError, UsageError
from superhosts.jit.ahead import begin_run
from superhosts.pipeline.contacts import FILTER_BYTES
from superhosts.pipeline.network import Network
from superhosts.sketch.evidence.sample import memory_of
from superhosts.sources.base import GROUPS, TUNNELS, Sampling, Wants

# The settings that decide which bits a packet sets. The key does, too, but is never stored.
FINGERPRINT = ("inner", "exclude", "watch", "direction", "window", "detector", "memory", "ipv6_prefix", "site")
# Settings that count only where they differ from the default, so that an edge goes on where an older release stopped.
LATER_FINGERPRINT = (
    *("slide", "geometry", "ipv4_prefix", "special", "tunnels", "peers", "count", "by", "proto", "port"),
    *("evidence", "evidence_pairs", "group_by"),
)
MOST_PANES = 10_000  # of a window: each may take a sketch
# Sketches in memory while windows overlap (sliding.py)
MOST_KEPT = 2  # sketches whose memory the panes may take that the front keeps besides its unions
MORE_SKETCHES = 4 + MOST_KEPT  # besides the panes: union of the back, last window, next window, pane that is open
PEERS = ("any", *CONTACTS)
LISTS = ("inner", "exclude", "watch", "direction", "peers", "proto", "port")  # a text alone is a list
WORDS = ("watch", "direction", "peers")  # those whose texts have commas between their items; others read these later
BY = ("address", "address-port")


@dataclass(frozen=True)
class Settings:
    """What to look for, and with which detector. The fields have the names of the options of `superhosts scan`."""

    inner: Sequence[str] = ()
    exclude: Sequence[str] = ()
    watch: Sequence[str] = ("inner",)
    direction: Sequence[str] = ("any",)
    threshold: float | None = None
    top: int | None = None
    window: str = defaults.WINDOW
    slide: str = ""  # from one window to the next, where they overlap; empty: as long as the window
    detector: str | type[Detector] = "cube"  # a name of the registry, or a class
    memory: str | int = defaults.MEMORY
    geometry: str = ""  # of a cube, as `superhosts plan` writes it, in place of memory
    exact: bool | str | None = None  # (on, off) keep pairs exactly while they fit; None: as the detector decides
    memory_total: str | int | None = None
    special: str = defaults.SPECIAL  # what multicast, broadcast and unspecified addresses are: drop (no hosts) or keep
    ipv4_prefix: int = defaults.IPV4_PREFIX
    ipv6_prefix: int = defaults.IPV6_PREFIX
    key: bytes | str | None = field(default=None, repr=False)  # a secret
    site: str = ""
    device: str = "auto"
    threads: int | None = None
    peers: Sequence[str] = ()  # which count: any, or those of contacts (opened, answered, unanswered); see chosen_peers
    count: str = "hosts"  # what is counted: hosts, ports or host-ports
    by: str = "address"  # what a host is: an address (or prefix), or with address-port a port of it
    proto: Sequence[str] = ()  # protocols that count; none: all
    port: Sequence[str] = ()  # ports that count, of either end; none: all
    tunnels: str = "outer"  # whose addresses count: those of the outer IP header, the inner one, or both
    group_by: str = ""  # what keeps packets apart, one of GROUPS: overlapping networks have the same addresses
    evidence: bool = False  # keep a sample of who talked to whom, and say what a host's peers look like
    evidence_pairs: int = defaults.EVIDENCE_PAIRS  # pairs in that sample, of each address family
    families: Sequence[int] = (4, 6)  # address families that count; no option has them yet

    def __post_init__(self) -> None:
        for name in LISTS:
            if isinstance(value := getattr(self, name), str):
                words = [word.strip() for word in value.split(",")] if name in WORDS else [value]
                object.__setattr__(self, name, tuple(words))
        for name, values, known in (
            ("watch", self.watch, SIDES),
            ("direction", self.direction, DIRECTIONS),
            ("peers", self.peers, PEERS),
            ("count", (self.count,), COUNTS),
            ("by", (self.by,), BY),
            ("tunnels", (self.tunnels,), TUNNELS),
            ("group_by", (self.group_by,) if self.group_by else (), GROUPS),
        ):
            for value in values:
                if value not in known:
                    raise UsageError(f"{setting(name, value)}: one of {', '.join(known)}")
        if self.site and not is_name(self.site):
            raise UsageError(f"{setting('site', printable(self.site))}: {NAME_RULE}")
        if "outer" in self.watch and not self.inner:
            needs = f"{setting('watch', 'outer')} needs {option('inner')}"
            raise UsageError(f"{needs}, because without it every address is inner and no host is outer")
        if isinstance(self.detector, str) and self.detector not in DETECTORS:
            raise UsageError(f"{setting('detector', self.detector)}: one of {', '.join(DETECTORS)}")
        kind = self.kind
        self._check_texts()
        self._check_slide()
        if self.by == "address-port" and self.ipv6_prefix > 128 - PORT_BITS and 6 in self.families:
            asked = f"{setting('by', self.by)} and {setting('ipv6_prefix', self.ipv6_prefix)}"
            why = f"a sketch has 128 bits for a host, and the port takes {PORT_BITS} of them"
            raise UsageError(f"{asked}: {why}; take {setting('ipv6_prefix', 128 - PORT_BITS)} or less")
        if self.by == "address-port" and 64 not in kind.widths:
            able = [name for name, each in DETECTORS.items() if 64 in each.widths]
            raise UsageError(f"{setting('by', self.by)}: only with {_detectors(able)}, not with {kind.name}")
        _ = self.lens  # raises what is wrong with protocols and ports
        if self.evidence_pairs != defaults.EVIDENCE_PAIRS and not self.evidence:
            raise UsageError(f"{setting('evidence_pairs', self.evidence_pairs)}: only with {option('evidence')}")
        if self.evidence and self.group_by:
            why = "a sample of pairs does not tell which group they are of"
            raise UsageError(f"{setting('group_by', self.group_by)}: not with {option('evidence')}: {why}")
        if not LEAST_EVIDENCE <= self.evidence_pairs <= MOST_EVIDENCE:
            bounds = f"from {LEAST_EVIDENCE:,} to {MOST_EVIDENCE:,}"
            raise UsageError(f"{setting('evidence_pairs', self.evidence_pairs)}: take {bounds}")
        if self.threshold is not None:
            check_threshold(self.threshold, named("threshold"))
        if self.top is not None:
            check_count(self.top, named("top"))
        if self.geometry and not issubclass(kind, Cube):
            raise UsageError(f"{named('geometry')}: only with {_detectors([Cube.name])}, not with {kind.name}")
        if self.geometry and self.memory != defaults.MEMORY:
            raise UsageError(f"{option('geometry')} and {named('memory')}: choose one; a geometry has its own size")
        if self.geometry:
            try:
                Geometry.parse(self.geometry, 32)
            except GeometryError as error:
                raise GeometryError(f"{named('geometry')}: {error}") from None
        if check_exact(self.exact) is not None and not issubclass(kind, Cube):
            raise UsageError(f"{named('exact')}: only with {_detectors([Cube.name])}, not with {kind.name}")
        kind.check_device(self.device)
        limit = self.memory_total
        if self.grows_with_traffic:
            if limit is not None:
                grows = f"the memory of {setting('detector', kind.name)} grows with the traffic"
                raise UsageError(f"{named('memory_total')}: {grows}")
        elif limit is not None and self.most_memory > parse_size(limit):
            each = f"{counted(len(self.parts) * self.most_groups, 'detector')} with buffers"
            if self.slides:
                each += f", in {counted(self.most_sketches, 'sketch', 'sketches')} of panes and unions"
            needs = f"may reach {format_size(self.most_memory)} ({each})"
            ways = f"{option('memory')} or a longer {option('slide')}" if self.slides else option("memory")
            raise UsageError(f"{setting('memory_total', limit)}: this scan {needs}; take less {ways}")

    @property
    def kind(self) -> type[Detector]:
        return DETECTORS[self.detector] if isinstance(self.detector, str) else self.detector

    def _check_texts(self) -> None:
        """Raise UsageError, which names the setting, if a text is no size or no length."""
        texts: tuple[tuple[str, Any, Callable[[Any], object]], ...] = (
            ("memory", self.memory, parse_size),
            ("memory_total", self.memory_total, parse_size),
            ("window", None if self.window == "all" else self.window, parse_duration),
            ("slide", self.slide or None, parse_duration),
        )
        for name, text, read in texts:
            try:
                _ = None if text is None else read(text)
            except UsageError as error:
                raise UsageError(f"{named(name)}: {error}{', or all' if name == 'window' else ''}") from None

    def _check_slide(self) -> None:
        """Raise UsageError unless windows slide by a part of their length, and sketches of panes can be merged."""
        if not self.slide:
            return
        if self.window == "all":
            way = "one window over everything does not slide; take a length like 5m"
            raise UsageError(f"{setting('slide', self.slide)}: not with {setting('window', 'all')}: {way}")
        length, slide = parse_duration(self.window), parse_duration(self.slide)
        if length % slide:
            way = f"the window ({self.window}) has to be a multiple of it, like {format_duration(length)} of "
            raise UsageError(f"{setting('slide', self.slide)}: {way}{format_duration(length // 10 or 1)}")
        if length // slide > MOST_PANES:
            most = f"a window has at most {MOST_PANES:,} panes, and {self.window} would have {length // slide:,}"
            raise UsageError(f"{setting('slide', self.slide)}: {most}")
        if length > slide and "merge" in self.kind.broken_laws:
            why = f"windows that overlap are merged from panes, which {self.kind.name} cannot do"
            raise UsageError(f"{setting('slide', self.slide)}: only with {_detectors(MERGED)}: {why}")

    @property
    def suits_stream(self) -> bool:
        """True with so little memory that a stream is better than a cube, unless only a cube has what is asked for."""
        needs_cube = self.slides or self.geometry or self.exact is not None or self.device.startswith("cuda")
        return not needs_cube and parse_size(self.memory) <= parse_size(defaults.STREAM_MEMORY)

    @property
    def slides(self) -> bool:
        """True if windows overlap: they are the unions of shorter ones, their panes."""
        return self.panes > 1

    @property
    def panes(self) -> int:
        return parse_duration(self.window) // parse_duration(self.slide) if self.slide else 1

    @property
    def most_sketches(self) -> int:
        """How many sketches are in memory at most: of panes and unions of panes, and the one that takes packets."""
        return self.panes + MORE_SKETCHES if self.slides else 1

    @property
    def parts(self) -> list[Part]:
        """The detectors that may be needed: every family, side, direction and contact that is asked for."""
        stored = []
        for part in self.reported_parts:
            contacts = ("opened", "answered") if part.contact == "unanswered" else (part.contact,)
            stored += [part.with_contact(contact) if contact else part for contact in contacts]
        return list(dict.fromkeys(stored))

    @property
    def reported_parts(self) -> list[Part]:
        """The parts whose hosts are asked for. Those that are unanswered are the difference of two detectors."""
        families = [family for family in self.families if family == 4 or 64 in self.kind.widths]
        sides = dict.fromkeys(self.watch)
        ways = dict.fromkeys(way for peers in self.chosen_peers for way in self._directions(peers))
        chosen = self.filter
        return [Part(family, side, way, self.count, chosen) for family in families for side in sides for way in ways]

    @property
    def filter(self) -> str:
        """Which packets count, in words that are equal if the same packets do; long ones as a hash."""
        tunnels = f"tunnels {self.tunnels}" if self.tunnels != "outer" else ""
        words = " ".join(each for each in (self.lens.filter_words, tunnels) if each)
        return words if len(words) <= MOST_FILTER else f"#{hashlib.blake2b(words.encode(), digest_size=8).hexdigest()}"

    @property
    def chosen_peers(self) -> Sequence[str]:
        """Which peers count; unless it is said, any. Ports are those that the host opened: replies go to any port."""
        return tuple(self.peers) or (("any",) if self.count == "hosts" else ("opened",))

    def _directions(self, peers: str) -> list[str]:
        """Return the directions of parts with these peers. Of contacts, "any" means that the host opened ("out")."""
        if peers == "any":
            return list(self.direction)
        return [f"{peers}-in" if way == "in" else peers for way in self.direction]

    @property
    def has_contacts(self) -> bool:
        return any(peers != "any" for peers in self.chosen_peers)

    @cached_property
    def lens(self) -> Lens:
        return Lens(
            parse_protocols(self.proto) if self.proto else None,
            parse_ports(self.port) if self.port else None,
            self.count,
            self.by == "address-port",
        )

    @property
    def most_memory(self) -> int:
        caches = 4 * thread_count(self.threads) << 20
        contacts = 2 * FILTER_BYTES if self.has_contacts else 0  # of two open windows
        samples = 2 * memory_of(self.evidence_pairs) if self.evidence else 0
        filled = self.panes + 1 if self.slides else 1  # with room for pairs that wait or have waited
        halves = 3 * filled + 2 * (self.most_sketches - filled)
        each = contacts + sum(self._memory(part) * halves // 2 + caches for part in self.parts)
        return samples + self.most_groups * each

    @property
    def most_groups(self) -> int:
        """How many groups a window may have; each takes the memory of all parts."""
        return MOST_GROUPS if self.group_by else 1

    @property
    def wants(self) -> Wants:
        details = self.has_contacts or self.lens.needs_details or self.evidence
        pane = 0 if self.window == "all" else parse_duration(self.slide or self.window)
        once = None if details or self.group_by or self.tunnels != "outer" else pane
        return Wants(details=details, tunnels=self.tunnels, group=self.group_by, once_within=once)

    @property
    def sampling(self) -> Sampling | None:
        """Of which packets details are wanted, if only of those in the sample of evidence; None: of all, or of none."""
        if not self.evidence or self.has_contacts or self.lens.needs_details:
            return None
        white, first, second, *_ = make_key(secret_of(self.key), integer=int).mangle64
        return Sampling((white, first, second))

    @property
    def grows_with_traffic(self) -> bool:
        """True if the memory depends on the traffic and cannot be chosen."""
        return issubclass(self.kind, Exact)

    @property
    def starts_exact(self) -> bool:
        return issubclass(self.kind, Cube) and starts_exact(self.exact, self.device)

    @property
    def selection(self) -> Selection:
        return Selection.of_scan(self.threshold, self.top)

    def with_threshold(self) -> Settings:
        """Return settings that ask for super hosts alone, unless they ask for something else."""
        return replace(self, threshold=defaults.THRESHOLD) if self.selection.either else self

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The settings that decide what a sketch of given traffic holds, in a form that can be compared and stored."""
        usual = {each.name: each.default for each in fields(self)}
        later = [name for name in LATER_FINGERPRINT if _comparable(getattr(self, name)) != usual[name]]
        values = {name: getattr(self, name) for name in (*FINGERPRINT, *later)} | {"detector": self.kind.name}
        return {name: value if isinstance(value, str | int) else list(value) for name, value in values.items()}

    @property
    def words(self) -> list[str]:
        """What decides which compiled loops a run with these settings uses."""
        has = [name for name in ("inner", "slides", "has_contacts", "evidence", "starts_exact") if getattr(self, name)]
        return [self.kind.name, self.count, self.by, *self.watch, *self.direction, *has]

    @property
    def cube_memory(self) -> int:
        return max(self._memory(part) for part in self.parts)

    def host_format(self, part: Part) -> HostFormat:
        prefix = self.ipv4_prefix if part.family == 4 else self.ipv6_prefix
        return HostFormat(part.family, prefix, self.lens.hosts_have_ports)

    def _memory(self, part: Part) -> int:
        if self.geometry:
            return Geometry.parse(self.geometry, self.host_format(part).key_bits).memory
        return parse_size(self.memory)

    def check_parts(self) -> None:
        self.make_network()
        if not self.geometry:
            self.kind.check_memory(self.memory, self.selection.threshold or defaults.THRESHOLD)

    def make_network(self) -> Network:
        """Return the monitored network. Raises UsageError if its options are invalid."""
        return Network(
            self.inner,
            self.exclude,
            special=self.special,
            ipv4_prefix=self.ipv4_prefix,
            ipv6_prefix=self.ipv6_prefix,
            lens=self.lens,
        )

    def make_detector(self, part: Part) -> Detector:
        common: dict[str, Any] = {"key": self.key, "device": self.device, "threads": self.threads}
        host = self.host_format(part)
        kind = self.kind
        if 64 in kind.widths:
            common["key_bits"] = host.key_bits
        if self.exact is not None:
            common["exact"] = self.exact
        if self.geometry:
            common["geometry"] = Geometry.parse(self.geometry, host.key_bits)
        elif not self.grows_with_traffic:
            common["memory"] = self.memory
        detector = kind.for_scan(self.selection.threshold or defaults.THRESHOLD, **common)
        detector.format = host
        return detector


AUTO = "auto"  # the detector that suits the memory


def settings_of(given: Mapping[str, Any], *, merges: bool = False) -> Settings:
    """Return the settings among the arguments of a function, or the options of a command. None means the default.

    The detector may be "auto". `merges`: sketches are kept, to be merged.
    """
    values = {each.name: given[each.name] for each in fields(Settings) if given.get(each.name) is not None}
    is_auto = values.get("detector") == AUTO
    settings = Settings(**values | ({"detector": Cube.name} if is_auto else {}))
    if is_auto and not merges and settings.suits_stream:
        settings = replace(settings, detector=Stream.name)
    begin_run(*settings.words)
    return settings


def _comparable(value: Any) -> Any:
    return value if isinstance(value, str | int) else tuple(value)


def _detectors(names: Sequence[str]) -> str:
    return either(f"--detector {', '.join(names)}", " or ".join(f'detector="{name}"' for name in names))
