"""`superhosts site`: which sites may send sketches to a hub."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from superhosts.cli._console import tell
from superhosts.cli._keys import announced_key
from superhosts.cli._service import STATUS
from superhosts.cli._sitelist import age_text, list_known, remarks, table_of
from superhosts.cli._values import parse_seconds
from superhosts.cli.usage.site import Enroll, List, Revoke, Rotate, TokenOptions
from superhosts.core.files import output_errors, read_json, write_private
from superhosts.core.keys import ChosenKey, find_key
from superhosts.core.text import printable
from superhosts.fleet.nats.enrolment import (
    enroll,
    hub_address,
    list_sites,
    make_token,
    read_outgoing,
    rotate,
    save_hub_address,
    token_of,
    unenroll,
)
from superhosts.output.table import OutputConsole

STALE = 60.0  # seconds after which a status says that its hub does not run
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
    reach = hub_address(folder, options.address, options.tls_ca)
    chosen, why = _sketch_key(state, options.key_file)
    seed = make(folder)
    token = make_token(site, seed, reach, None if chosen is None else chosen.secret).encode()
    kept = token_of(folder, site)
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
    key = _status(state).get("key")
    return printable(key) if isinstance(key, str) else None


def revoke_site(options: Revoke) -> None:
    """Revoke the key of a site; a hub that is running notices it by itself."""
    unenroll(options.state / BROKER, options.site)
    tell(f"{options.site} is revoked")


def show_sites(options: List) -> None:
    """Print the sites as a table, or as JSON Lines."""
    folder, status = options.state / BROKER, _status(options.state)
    known, now = status.get("sites"), time.time()
    found = list_known(list_sites(folder), read_outgoing(folder, now), known if isinstance(known, dict) else {}, now)
    if options.json:
        for each in found:
            print(json.dumps(each))
        return
    if not found:
        tell(f"{options.state}: no site is enrolled (superhosts site enroll SITE)")
        return
    OutputConsole().print(table_of(found))
    written = status.get("written")
    if isinstance(written, int | float) and time.time() - written > STALE:
        tell(f"the hub does not run: all but the keys is as of {age_text(time.time() - written)} ago")
    for remark in remarks(found):
        tell(remark)


def _status(state: Path) -> dict[str, Any]:
    """Return what a hub has written last; empty if nothing is there."""
    with contextlib.suppress(OSError):
        status = read_json(state / STATUS)
        if isinstance(status, dict):
            return status
    return {}
