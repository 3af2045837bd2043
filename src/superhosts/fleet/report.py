"""The report of a hub about one window: rows with the sites that saw each host, and the sites that took part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from superhosts.core.pairs import HostKeys, Part, numbers_to_array
from superhosts.core.profile import Durations
from superhosts.core.results import Selection, SuperHosts, plain_host
from superhosts.core.text import counted
from superhosts.detectors.arguments import Hosts
from superhosts.errors import SketchFileError, SuperhostsError, UnreadableError
from superhosts.output.report import LazyRows, Report, Row, known_peers, make_rows
from superhosts.sketch.files import estimate_in_file
from superhosts.sketch.sketch import Sketch
from superhosts.sketch.unanswered import searched


@dataclass(frozen=True, kw_only=True)
class HubReport(Report):
    rows: Sequence[Row] = ()
    sites: list[str]
    missing: list[str]
    refused: dict[str, str]  # site → reason
    left_out: int = 0  # hosts with as many peers as asked for that are not in the rows
    least_listed: float = 1  # peers below which hosts cannot be listed
    has_evidence: bool = True  # False: the sketches carry none

    @property
    def attendance(self) -> str:
        """Which sites took part: "5 of 5 sites", "4 of 5 sites: missing fra"."""
        total = counted(len(self.sites) + len(self.missing), "site")
        text = f"{len(self.sites)} of {total}" + (f": missing {', '.join(self.missing)}" if self.missing else "")
        return text + "".join(f"; refused {site} ({reason})" for site, reason in self.refused.items())

    @property
    def warnings(self) -> Sequence[str]:
        """What `sites`, `missing` and `revision` do not tell: which sites were refused."""
        return [f"refused {site}: {reason}" for site, reason in self.refused.items()]


class Reporter:
    """Makes reports of the hosts that are asked for now. `on_left_out` gets a site's sketch that cannot be asked."""

    def __init__(
        self,
        selection: Callable[[], Selection],
        key: bytes | str | None,
        on_left_out: Callable[[SuperhostsError], None],
    ) -> None:
        self._selection, self._key, self._on_left_out = selection, key, on_left_out
        self.restoring = Durations()
        self.on_union: Callable[[Sketch], None] | None = None  # told each union that is reported

    def make(
        self,
        sketch: Sketch,
        draft: HubReport,
        files: Mapping[str, list[Path]],
        before: Iterable[Any],
        *,
        trusted: bool = False,
    ) -> HubReport:
        """Return the report of a union.

        `draft` says who took part, `files` where the sites' own sketches are (`trusted`: their checksums are verified),
        and `before` has the rows of the last report.
        """
        if self.on_union is not None:
            self.on_union(sketch)
        with self.restoring.measured():
            found, left_out = self._selection().search(sketch)
        site_estimates = SiteEstimates(found, sketch, self._key)
        site_estimates.remember(before)
        for error in site_estimates.ask(files, trusted=trusted):
            self._on_left_out(error)
        assert draft.window is not None
        plain = make_rows(draft.window, found, judge=sketch.judge())
        taken = {"missing": draft.missing, "revision": draft.revision}
        rows = LazyRows(len(plain), lambda number: {**plain[number], "sites": site_estimates.of(number), **taken})
        with_evidence = sketch.evidence is not None
        least = sketch.least_listed
        return replace(draft, rows=rows, left_out=left_out, least_listed=least, has_evidence=with_evidence)


class SiteEstimates:
    """Which sites saw a host: a second pass over the sites' own sketches, for the hosts that were found.

    Estimates are stored as arrays, and a host's list of sites is built when its row is written: a thousand hosts at a
    hundred sites would be a hundred thousand small records, which take more memory than the cube.
    """

    def __init__(self, found: SuperHosts, sketch: Sketch, key: bytes | str | None) -> None:
        self._key = key
        # Of each host: its part, and its position among the hosts of that part.
        self._places: list[tuple[Part, int]] = []
        self._before: dict[int, list[Row]] = {}  # from the previous report, by host
        self._answers: dict[str, dict[Part, SuperHosts]] = {}  # by site
        self._names = {
            (plain_host(item.host), *item.part.columns, item.part.counts, item.part.filter, item.part.group): number
            for number, item in enumerate(found)
        }
        hosts: dict[Part, list[int]] = defaultdict(list)
        formats = {part: detector.format for part in set(found.parts) if (detector := searched(sketch.parts, part))}
        for item in found:
            self._places.append((item.part, len(hosts[item.part])))
            hosts[item.part].append(formats[item.part].to_number(item.host))
        self._asked: dict[Part, Hosts] = {
            part: HostKeys(numbers_to_array(numbers, formats[part].key_bits)) for part, numbers in hosts.items()
        }

    def remember(self, rows: Iterable[Row]) -> None:
        """Take the sites from the rows of the previous report, since some sites' sketches may be gone by now."""
        for row in rows:
            place = row["host"], row["family"], row["side"], row["direction"]
            number = self._names.get((*place, row.get("counts", "hosts"), row.get("filter", ""), row.get("group", "")))
            if number is not None:
                self._before[number] = row["sites"]

    def ask(self, files: Mapping[str, list[Path]], *, trusted: bool) -> list[SuperhostsError]:
        """Query the sketches of all sites (`trusted`: their checksums are verified); return the permanent errors."""
        failed: list[SuperhostsError] = []
        for site, paths in files.items() if self._asked else ():
            try:
                self._answers[site] = self._ask_site(paths, trusted)
            except (UnreadableError, OSError, MemoryError):
                raise  # the next attempt may succeed
            except SuperhostsError as error:
                failed.append(error)
            except Exception as error:  # any damage, accidental or deliberate
                names = ", ".join(path.name for path in paths)
                failed.append(SketchFileError(f"it is invalid ({type(error).__name__}: {error})", file=names))
        return failed

    def _ask_site(self, paths: list[Path], trusted: bool) -> dict[Part, SuperHosts]:
        if len(paths) == 1:
            return estimate_in_file(paths[0], self._asked, key=self._key, trusted=trusted)
        whole = Sketch()  # the site was restarted within the window: merge its sketches
        for path in paths:
            whole.merge_file(path, key=self._key)
        asked = [(part, searched(whole.parts, part), column) for part, column in self._asked.items()]
        return {part: detector.estimate_many(column) for part, detector, column in asked if detector is not None}

    def of(self, number: int) -> list[Row]:
        """Return the sites that saw a host, in descending order of peers."""
        part, place = self._places[number]
        seen = {site["site"]: site for site in self._before.get(number, ()) if site["site"] not in self._answers}
        for site, answers in self._answers.items():
            if part in answers and answers[part].peers_low[place] >= 1:  # more than the noise of an absent host
                rows = answers[part]
                measured = not rows.saturated[place]
                seen[site] = {
                    "site": site,
                    "peers": int(rows.peers[place]) if measured else None,
                    "peers_low": int(rows.peers_low[place]),
                    "peers_high": int(rows.peers_high[place]) if measured else None,
                }
        return sorted(seen.values(), key=lambda row: (-known_peers(row), row["site"]))
