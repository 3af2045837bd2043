"""`superhosts site`: which sites may send sketches to a hub."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from rich.table import Table

from superhosts.cli._console import tell
from superhosts.cli._keys import announced_key
from superhosts.cli._service import STATUS
from superhosts.cli.usage.site import Enroll, List, Revoke
from superhosts.durable import read_json
from superhosts.fleet.nats.enrolment import Enrolment, enroll, list_sites, unenroll
from superhosts.keys import PUBLIC, find_key
from superhosts.reports.terminal import OutputConsole
from superhosts.text import printable

BROKER = "broker"  # the folder of the embedded broker, within the hub's


def enroll_site(options: Enroll) -> None:
    """Make a key for a site and print its file; a hub that is running notices it by itself."""
    replaced = any(each.site == options.site and not each.revoked for each in list_sites(options.state / BROKER))
    print(enroll(options.state / BROKER, options.site))
    if replaced:
        tell(f"the older key of {options.site} is no longer accepted")
    tell(f"take this file to the edge and start it with --site {options.site} --nkey {options.site}.nk")
    tell(_how_to_share_key(options))


def _how_to_share_key(options: Enroll) -> str:
    """Say how an edge gets the sketch key of its hub. A hub that has run has noted which key that is."""
    hubs = _key_of_hub(options.state)
    chosen = announced_key(options.key_file) if hubs is None else find_key(options.key_file)
    if chosen is None or chosen.lost or hubs not in (None, chosen.fingerprint):
        which = "of the hub" if hubs is None else f"of the hub, {hubs}"
        return f"the edge needs the sketch key {which}, too: copy the hub's key file there and add --key-file FILE"
    if chosen.is_public:
        return f"the sketch key of the hub is public; add --key-file {PUBLIC}"
    needs = f"the edge needs the sketch key of the hub, {chosen.fingerprint}, too"
    if not isinstance(chosen.place, Path):
        return f"{needs}: give {chosen.place} the same value there"
    return f"{needs}: copy {chosen.place.absolute()} there and add --key-file FILE"


def _key_of_hub(state: Path) -> str | None:
    """Return the fingerprint of the key with which a hub has last used a folder; None if that is not known."""
    with contextlib.suppress(OSError):
        status = read_json(state / STATUS)
        if isinstance(status, dict) and isinstance(status.get("key"), str):
            return printable(status["key"])
    return None


def revoke_site(options: Revoke) -> None:
    """Revoke the key of a site; a hub that is running notices it by itself."""
    unenroll(options.state / BROKER, options.site)
    tell(f"{options.site} is revoked")


def show_sites(options: List) -> None:
    """Print the sites as a table, or as JSON Lines."""
    sites = list_sites(options.state / BROKER)
    if options.json:
        for each in sites:
            print(json.dumps(each._asdict()))
    elif sites:
        OutputConsole().print(_table(sites))
    else:
        tell(f"{options.state}: no site is enrolled (superhosts site enroll SITE)")


def _table(sites: list[Enrolment]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("site", "enrolled", "revoked"):
        table.add_column(title, no_wrap=True)
    for each in sites:
        table.add_row(each.site, each.enrolled or "unknown", each.revoked or "")
    return table
