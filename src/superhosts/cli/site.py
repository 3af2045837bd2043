"""`superhosts site`: which sites may send sketches to a hub."""

from __future__ import annotations

import json

from rich.table import Table

from superhosts.cli._console import tell
from superhosts.cli.usage.site import Enroll, List, Revoke
from superhosts.fleet.nats.enrolment import Enrolment, enroll, list_sites, unenroll
from superhosts.reports.terminal import OutputConsole

BROKER = "broker"  # the folder of the embedded broker, within the hub's


def enroll_site(options: Enroll) -> None:
    """Make a key for a site and print its file; a hub that is running notices it by itself."""
    replaced = any(each.site == options.site and not each.revoked for each in list_sites(options.state / BROKER))
    print(enroll(options.state / BROKER, options.site))
    if replaced:
        tell(f"the older key of {options.site} is no longer accepted")
    tell(f"take this file to the edge and start it with --site {options.site} --nkey {options.site}.nk")


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
