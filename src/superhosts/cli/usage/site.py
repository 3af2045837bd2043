"""Options of `superhosts site enroll`, `site rotate`, `site revoke` and `site list`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from superhosts.cli._options import GRACE, HUB_STATE, KEY_FILE, STATE, TLS_CA, Json, worded

Name = Annotated[str, typer.Argument(metavar="SITE", help="Name of the site, as its edge gives it with --site.")]


@dataclass(frozen=True)
class TokenOptions:
    """What a token says besides the site's own key."""

    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address under which edges reach the hub, like tls://hub.example:4222. It is remembered for the next "
            "site.",
            show_default="the last one given, or where the hub listens",
        ),
    ] = None
    tls_ca: Annotated[
        Path | None,
        worded(TLS_CA, "Certificate of the authority that signed the hub's certificate; it is remembered, too."),
    ] = None
    key_file: Annotated[Path | None, worded(KEY_FILE, "The key file of the hub, if it has one.")] = None


@dataclass(frozen=True)
class Enroll:
    """Make the key of a site, or replace it, and print the token with which its edge joins.

    The token is one word with the hub's address, the site's key, the authority of the hub's certificate and the sketch
    key. It is a secret: whoever has it can send as this site and read addresses from the fleet's sketches. Start the
    edge with --join @FILE. An older key of the site is no longer accepted. A hub that is running notices the change
    within seconds.

    Examples:
        superhosts site enroll ams --address tls://hub.example:4222 > ams.token
        superhosts site enroll fra > fra.token
    """

    site: Name
    state: Annotated[Path, STATE] = HUB_STATE
    token: TokenOptions = field(default_factory=TokenOptions)


@dataclass(frozen=True)
class Rotate:
    """Give an enrolled site a new key, and print its new token.

    The old key is rejected within seconds, or with --grace after that time. The edge waits meanwhile, and loses
    nothing. The key of sketches stays the same: sketches of two keys cannot be merged (docs/guides/fleet/keys.md).

    Example: superhosts site rotate ams --grace 1d > ams.token
    """

    site: Name
    state: Annotated[Path, STATE] = HUB_STATE
    grace: Annotated[str, worded(GRACE, "How long the old key is still accepted.")] = "0s"
    token: TokenOptions = field(default_factory=TokenOptions)


@dataclass(frozen=True)
class Revoke:
    """Revoke the key of a site: the hub turns its edge away.

    A hub that is running notices the change within seconds. Sketches of the site that wait in the queue are dropped.
    Keys belong to the hub's broker: a hub that reads a folder (--from) takes the sketches of everybody who can write
    there.

    Example: superhosts site revoke ams
    """

    site: Name
    state: Annotated[Path, STATE] = HUB_STATE


@dataclass(frozen=True)
class List:
    """List the sites of a hub: their keys, when they were last heard, how far they are, and what is wrong there.

    seen: when something of the site last arrived. version: the release of its edge. lag: age of the window that
    arrived last, counted from its end. spool: sketches that wait at the edge, and their size. refused: sketches that
    the hub refused since it started. slowed: how often the site had to wait, as it was over its quota. clock: how far
    its clock is ahead of the hub's. What a site does not tell, as edges of earlier releases or links by files, is
    shown as -.

    Example: superhosts site list --json
    """

    state: Annotated[Path, STATE] = HUB_STATE
    json: Json = False
