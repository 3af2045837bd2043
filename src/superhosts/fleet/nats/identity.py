"""The identity of a hub: a random mark in its state folder, and the name of its machine.

It is stored with the queue at a NATS server, so that two hubs with the same server do not take each other's sketches.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from superhosts.core.files import read_json, write_json
from superhosts.errors import OutputError

FILE = "identity.json"


class Identity(NamedTuple):
    """A hub. Both fields must match: a state folder may have been copied to another machine."""

    mark: str = ""
    host: str = ""

    @property
    def metadata(self) -> dict[str, str]:
        """The identity as stored at the server."""
        return {"superhosts-hub": self.mark, "superhosts-host": self.host}

    @classmethod
    def parse(cls, metadata: Mapping[str, str] | None) -> Identity:
        """Read an identity stored at the server; older hubs stored none."""
        found = metadata or {}
        return cls(found.get("superhosts-hub", ""), found.get("superhosts-host", ""))


NOBODY = Identity()


def own_identity(state: Path) -> Identity:
    """Return the identity of the hub with this state folder; the mark is created at the first start."""
    path = state / FILE
    try:
        mark = read_json(path)
        if not isinstance(mark, str) or not mark:
            mark = secrets.token_hex(8)
            write_json(path, mark)
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror or error}") from None
    return Identity(mark, socket.gethostname())
