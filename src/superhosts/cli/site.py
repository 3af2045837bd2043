"""`superhosts site`: which sites may send sketches to a hub."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from superhosts.cli._keys import announced_key
from superhosts.cli._options import HUB_STATE
from superhosts.cli._values import parse_seconds
from superhosts.cli.usage.fleet import SiteEnroll, SiteList, SiteRevoke, SiteRotate, TokenOptions
from superhosts.core.files import output_errors, write_private
from superhosts.core.keys import ChosenKey, find_key
from superhosts.core.text import printable
from superhosts.core.times import age_text, iso_time
from superhosts.core.units import SECOND, format_size
from superhosts.fleet.nats.enrolment import (
    Enrolment,
    enroll,
    hub_address,
    list_sites,
    make_token,
    read_sites,
    rotate,
    save_hub_address,
    token_of,
    unenroll,
)
from superhosts.fleet.sites import is_wrong
from superhosts.output.console import tell
from superhosts.output.table import print_table
from superhosts.ui.service import STATUS, read_status

# The list of sites: who may send, and what the hub knows about each


NUMBERS = ("spool_sketches", "spool_bytes", "accepted", "refused", "slowed")
MISSING = "-"
TITLES = ("site", "key since", "seen", "version", "lag", "spool", "refused", "slowed", "clock")
Row = dict[str, Any]


def list_known(enrolled: Mapping[str, Enrolment], known: Mapping[str, Any], now: float) -> list[Row]:
    """Return what is known about each site, enrolled or heard; `known` is from the status of a hub."""
    rows = []
    for site in sorted({*enrolled, *known}):
        key, facts = enrolled.get(site, Enrolment()), known.get(site)
        until = key.old_key_until
        rows.append(
            {
                "site": site,
                "enrolled": key.enrolled,
                "revoked": key.revoked,
                "key": key.key,
                "old_key_until": iso_time(int(until) * SECOND) if until > now else None,
                **_row(facts if isinstance(facts, dict) else {}, now),
            }
        )
    return rows


def _row(facts: Row, now: float) -> Row:
    seen, end, clock = (_number(facts.get(name)) for name in ("seen", "window_end", "clock"))
    version, mismatch = (facts.get(name) for name in ("version", "mismatch"))
    return {
        "seen": None if seen is None else iso_time(int(seen) * SECOND),
        "seen_seconds": None if seen is None else round(now - seen, 1),
        "version": printable(version) if isinstance(version, str) else None,
        "lag_seconds": None if end is None else round(now - end, 1),
        **{name: _number(facts.get(name)) for name in NUMBERS},
        "clock_seconds": clock,
        "clock_wrong": None if clock is None else is_wrong(clock),
        "mismatch": printable(mismatch) if isinstance(mismatch, str) and mismatch else None,
    }


def _number(value: Any) -> Any:
    return value if type(value) in (int, float) and abs(value) < 1e15 else None


def cells_of(row: Row) -> list[str]:
    waiting, size = row["spool_sketches"], row["spool_bytes"]
    return [
        row["site"],
        _key_text(row),
        _or_missing(row["seen_seconds"], lambda age: f"{age_text(age)} ago"),
        row["version"] or MISSING,
        _or_missing(row["lag_seconds"], age_text),
        MISSING if waiting is None else f"{waiting:,} ({format_size(size or 0)})" if waiting else "0",
        *(_or_missing(row[name], "{:,}".format) for name in ("refused", "slowed")),
        _or_missing(row["clock_seconds"], lambda ahead: f"{ahead:+.1f} s" if abs(ahead) < 60 else age_text(ahead)),
    ]


def _key_text(row: Row) -> str:
    """Return since when a site has its key; a site without one sends by files, or to a hub that admits everybody."""
    if row["revoked"]:
        return "revoked"
    return "none" if row["key"] is None else (row["enrolled"] or "unknown")[:10]


def remarks(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        site, clock = row["site"], row["clock_seconds"]
        if row["clock_wrong"]:
            way = "ahead of" if clock > 0 else "behind"
            yield f"the clock of {site} is {age_text(abs(clock))} {way} the hub's"
        if row["mismatch"]:
            yield f"nothing is taken from {site}: {row['mismatch']}"
        if row["old_key_until"]:
            yield f"an older key of {site} is accepted until {row['old_key_until']}"


def _or_missing(value: Any, show: Any) -> str:
    return MISSING if value is None else show(value)


STALE = 60.0  # seconds after which a status says that its hub does not run
BROKER = "broker"  # the folder of the embedded broker, within the hub's


def site_enroll(options: SiteEnroll) -> None:
    replaced = options.site in read_sites(options.state / BROKER)
    _give_token(options, lambda folder: enroll(folder, options.site))
    if replaced:
        tell(f"the older key of {options.site} is no longer accepted")


def site_rotate(options: SiteRotate) -> None:
    grace = parse_seconds(options.grace)
    _give_token(options, lambda folder: rotate(folder, options.site, grace))
    when = f"accepted for another {options.grace}" if grace else "no longer accepted"
    tell(f"the older key of {options.site} is {when}")


def _give_token(options: TokenOptions, make: Callable[[Path], Path]) -> None:
    """Make a key, and print the token of a site, which is kept beside the key."""
    folder = options.state / BROKER
    reach = hub_address(folder, options.address, options.tls_ca)
    chosen, why = _sketch_key(options.state, options.key_file)
    seed = make(folder)
    token = make_token(options.site, seed, reach, None if chosen is None else chosen.secret).encode()
    kept = token_of(folder, options.site)
    with output_errors(folder):
        save_hub_address(folder, options.address, options.tls_ca)
        write_private(kept, token)
    print(token)
    tell(f"this token is a secret; it is also in {kept}. Take it to the edge and start it with --join @FILE")
    if reach.guessed or reach.is_local:
        tell(f"the edge will look for the hub at {reach.url}; give --address URL if it is elsewhere")
    tell(why)


def _sketch_key(state: Path, key_file: Path | None) -> tuple[ChosenKey | None, str]:
    """Return the sketch key of a hub, None if this user does not have it, and words about it.

    A hub that has run has noted which key that is.
    """
    hubs = read_status(state / STATUS).get("key")
    hubs = printable(hubs) if isinstance(hubs, str) else None
    chosen = announced_key(key_file) if hubs is None else find_key(key_file)
    if chosen is None or chosen.lost or hubs not in (None, chosen.fingerprint):
        which = "of the hub" if hubs is None else f"of the hub, {hubs}"
        needs = "copy the hub's key file there and add --key-file FILE, or give it here with --key-file"
        return None, f"the token has no sketch key, and the edge needs that {which}: {needs}"
    if chosen.is_public:
        return chosen, "the sketch key in the token is public: anyone can read addresses from the sketches"
    return chosen, f"the sketch key in the token is {chosen}, which must be that of the hub"


def site_revoke(options: SiteRevoke) -> None:
    """Revoke the key of a site; a hub that is running notices it by itself."""
    unenroll(options.state / BROKER, options.site)
    tell(f"{options.site} is revoked")


def site_list(options: SiteList) -> None:
    folder, status = options.state / BROKER, read_status(options.state / STATUS)
    known, now = status.get("sites"), time.time()
    found = list_known(list_sites(folder), known if isinstance(known, dict) else {}, now)
    if options.json:
        for each in found:
            print(json.dumps(each))
        return
    if not found:
        tell(f"{options.state}: no site is enrolled (superhosts site enroll SITE)")
        return
    print_table(TITLES, map(cells_of, found), left=4)
    written = status.get("written")
    if isinstance(written, int | float) and time.time() - written > STALE:
        tell(f"the hub does not run: all but the keys is as of {age_text(time.time() - written)} ago")
    for remark in remarks(found):
        tell(remark)


def enrolled_sites(ctx: click.Context) -> list[str]:
    """Return the sites that a shell offers: those of the hub whose state is named."""
    return sorted(read_sites(Path(ctx.params.get("state") or HUB_STATE) / BROKER))
