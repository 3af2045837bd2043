"""Which hub this is: a mark that stays with the state folder, and the machine.

It stands with the queue at a NATS server, so that two hubs which were given the same server do not take each other's
sketches in turns.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from superhosts.durable import read_json, write_json
from superhosts.errors import OutputError

FILE = "identity.json"


class Identity(NamedTuple):
    """A hub. Both must agree: a state folder may have been copied to another machine."""

    mark: str = ""
    host: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """What is written down at the server."""
        return {"superhosts-hub": self.mark, "superhosts-host": self.host}

    @classmethod
    def parse(cls, metadata: Mapping[str, str] | None) -> Identity:
        """Read what somebody has written down; older hubs wrote nothing."""
        found = metadata or {}
        return cls(found.get("superhosts-hub", ""), found.get("superhosts-host", ""))


NOBODY = Identity()


def own_identity(state: Path) -> Identity:
    """Return who the hub with this state folder is; the mark is made at its first start."""
    path = state / FILE
    try:
        mark = read_json(path)
        if not isinstance(mark, str) or not mark:
            mark = secrets.token_hex(8)
            write_json(path, mark)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from None
    return Identity(mark, socket.gethostname())
