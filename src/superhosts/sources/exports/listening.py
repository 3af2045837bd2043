"""Where exports are received: netflow://ADDRESS:PORT and sflow://ADDRESS:PORT.

| word | what it says |
|---|---|
| `sockets` | sockets that share the port (1), each with a thread; the kernel divides the exporters among them |
| `templates` | the file that keeps templates for the next start, or `none` |
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from superhosts.errors import UsageError
from superhosts.sources.exports.state import state_folder

PORTS = {"netflow": 2055, "sflow": 6343}
WORDS = ("sockets", "templates")
MOST_SOCKETS = 64
NONE = "none"


@dataclass(frozen=True)
class Listening:
    """An address and a port, and how they are used."""

    scheme: str
    host: str
    port: int
    sockets: int = 1
    templates: str = ""  # a file; NONE: no file; empty: the usual one

    @property
    def state_file(self) -> Path | None:
        """The file that keeps templates; None if nothing is kept."""
        if self.templates == NONE or self.scheme == "sflow":  # sFlow has no templates
            return None
        place = self.host.replace(":", "_").replace("%", "_") or "all"
        return Path(self.templates) if self.templates else state_folder() / f"templates-{place}-{self.port}.json"

    def resolve(self) -> tuple[int, Any]:
        """Return the family and the address of the socket; OSError if there is no such address."""
        if not self.host:
            return socket.AF_INET, ("0.0.0.0", self.port)
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
        return found[0][0], found[0][4]


def parse_listening(text: str) -> Listening:
    """Read the name of an input; UsageError if it makes no sense."""
    scheme, _, rest = text.partition(":")
    example = f"{scheme}://0.0.0.0:{PORTS[scheme]}"
    in_brackets = f"an IPv6 address stands in brackets, like {scheme}://[::1]:{PORTS[scheme]}"
    try:
        url = urlsplit(text)
    except ValueError:  # of brackets without their partner, or without an IPv6 address between them
        raise UsageError(f"{text}: this is no address; write it like {example}; {in_brackets}") from None
    if not rest.startswith("//") or url.path.strip("/") or url.fragment or url.username is not None:
        raise UsageError(f"{text}: write it like {example}")
    if url.netloc.count(":") > 1 and "[" not in url.netloc:
        raise UsageError(f"{text}: {in_brackets}")
    try:
        port = PORTS[scheme] if url.port is None else url.port
    except ValueError:  # of no number, or one that is too large
        port = 0
    if port == 0:
        shown = url.netloc.rpartition(":")[2]
        raise UsageError(f"{text}: port {shown}: must be a number from 1 to 65535; write it like {example}")
    words: dict[str, str] = {}
    for word, value in parse_qsl(url.query, keep_blank_values=True):
        if word not in WORDS:
            raise UsageError(f"{text}: unknown word {word!r}; use {', '.join(WORDS)}")
        if not value:
            raise UsageError(f"{text}: {word}= needs a value")
        words[word] = value
    sockets = words.get("sockets", "1")
    if not (sockets.isascii() and sockets.isdigit() and 1 <= int(sockets) <= MOST_SOCKETS):
        raise UsageError(f"{text}: sockets={sockets}: a number from 1 to {MOST_SOCKETS}")
    listening = Listening(scheme, url.hostname or "", port, int(sockets), words.get("templates", ""))
    try:
        listening.resolve()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{text}: {url.hostname} is no address of this machine: {reason}") from None
    return listening
