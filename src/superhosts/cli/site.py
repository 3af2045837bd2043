"""`superhosts site`: which sites may send sketches to a hub."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

from superhosts.cli._console import tell
from superhosts.cli._keys import announced_key
from superhosts.cli._service import STATUS
from superhosts.cli._values import parse_seconds
from superhosts.cli.usage.site import Enroll, List, Revoke, Rotate, TokenOptions
from superhosts.durable import read_json, write_private
from superhosts.fleet.nats.enrolment import Enrolment, enroll, list_sites, rotate, token_of, unenroll
from superhosts.fleet.nats.joining import make_token, reach_of, remember_reach
from superhosts.keys import ChosenKey, find_key
from superhosts.replacing import output_errors
from superhosts.reports.terminal import OutputConsole
from superhosts.text import printable

BROKER = "broker"  # the folder of the embedded broker, within the hub's


def enroll_site(options: Enroll) -> None:
    """Make a key for a site and print its token; a hub that is running notices it by itself."""
    replaced = any(each.site == options.site and not each.revoked for each in list_sites(options.state / BROKER))
    _give_token(options.state, options.site, options.token, lambda folder: enroll(folder, options.site))
    if replaced:
        tell(f"the older key of {options.site} is no longer accepted")


def rotate_site(options: Rotate) -> None:
    """Make a new key for a site and print its token."""
    grace = parse_seconds(options.grace)
    _give_token(options.state, options.site, options.token, lambda folder: rotate(folder, options.site, grace))
    when = f"accepted for another {options.grace}" if grace else "no longer accepted"
    tell(f"the older key of {options.site} is {when}")


def _give_token(state: Path, site: str, options: TokenOptions, make: Callable[[Path], Path]) -> None:
    """Make a key, and print the token of a site, which is kept beside the key."""
    folder = state / BROKER
    reach = reach_of(folder, options.address, options.tls_ca)
    chosen, why = _sketch_key(state, options.key_file)
    seed = make(folder)
    token = make_token(site, seed, reach, None if chosen is None else chosen.secret).encode()
    kept = token_of(folder, site)
    with output_errors(folder):
        remember_reach(folder, options.address, options.tls_ca)
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
    hubs = _key_of_hub(state)
    chosen = announced_key(key_file) if hubs is None else find_key(key_file)
    if chosen is None or chosen.lost or hubs not in (None, chosen.fingerprint):
        which = "of the hub" if hubs is None else f"of the hub, {hubs}"
        needs = "copy the hub's key file there and add --key-file FILE, or give it here with --key-file"
        return None, f"the token has no sketch key, and the edge needs that {which}: {needs}"
    if chosen.is_public:
        return chosen, "the sketch key in the token is public: anyone can read addresses from the sketches"
    return chosen, f"the sketch key in the token is {chosen}, which must be that of the hub"


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
