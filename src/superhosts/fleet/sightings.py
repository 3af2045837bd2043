"""Who saw a host: a second pass over the sites' own sketches, which keeps only the columns of the hosts found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from superhosts.detectors.base import SuperHosts
from superhosts.detectors.estimate import UNBOUNDED
from superhosts.detectors.sketch import Found, Sketch
from superhosts.detectors.stored import estimate_each, estimate_in_file
from superhosts.pairs import Addresses, Part, numbers_to_array
from superhosts.reports.base import Row


class Sightings:
    """For every host found, what single sites make of it."""

    def __init__(self, found: list[Found], sketch: Sketch, key: bytes | str | None) -> None:
        self._found = found
        self._key = key
        self._seen: list[dict[str, Row]] = [{} for _ in found]
        self._places: dict[Part, list[int]] = defaultdict(list)
        for place, item in enumerate(found):
            self._places[item.part].append(place)
        self._asked: dict[Part, Addresses] = {}
        for part, places in self._places.items():
            format_ = sketch.parts[part].format
            self._asked[part] = numbers_to_array([format_.to_number(found[p].host) for p in places], format_.key_bits)

    def remember(self, rows: list[Row]) -> None:
        """Take what an earlier report said: some of the sites' sketches may be gone since."""
        before = {(row["host"], row["family"], row["side"], row["direction"]): row["sites"] for row in rows}
        for item, seen in zip(self._found, self._seen, strict=True):
            seen.update({site["site"]: site for site in before.get((str(item.host), *item.part), ())})

    def ask(self, files: Mapping[str, list[Path]]) -> None:
        """Ask the sketches of all sites. Their checksums were checked when they were merged, a moment ago."""
        for site, paths in files.items():
            for part, rows in self._ask_site(paths).items():
                high = rows.peers_high
                for i, place in enumerate(self._places[part]):
                    self._seen[place].pop(site, None)
                    if rows.peers_low[i] >= 1:  # beyond the noise of a host that was not there
                        self._seen[place][site] = {
                            "site": site,
                            "peers": int(rows.peers[i]),
                            "peers_low": int(rows.peers_low[i]),
                            "peers_high": None if high[i] == UNBOUNDED else int(high[i]),
                        }

    def _ask_site(self, paths: list[Path]) -> dict[Part, SuperHosts]:
        if not self._asked:
            return {}
        if len(paths) == 1:
            return estimate_in_file(paths[0], self._asked, key=self._key, trusted=True)
        whole = Sketch()  # the site was restarted within the window: its sketches count together
        for path in paths:
            whole.merge_file(path, key=self._key)
        return {
            part: estimate_each(whole.parts[part], column)
            for part, column in self._asked.items()
            if part in whole.parts
        }

    def rows(self) -> list[list[Row]]:
        """Return the sites that saw each host, most peers first."""
        return [sorted(seen.values(), key=lambda row: (-row["peers"], row["site"])) for seen in self._seen]
