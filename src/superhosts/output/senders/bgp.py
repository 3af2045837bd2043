"""Acts of routers: `bgp:/run/exabgp/exabgp.in`, announcements by ExaBGP over its named pipe.

`kind=blackhole` announces a route to the host with the community BLACKHOLE (RFC 7999), so routers that agree to it drop
what is sent *to* the host; with reverse path checks also what comes from it. `kind=flowspec` announces a rule (RFC
8955) by which routers drop what comes *from* the host. ExaBGP answers each command on the pipe beside, `exabgp.out`;
without that pipe a command that was written counts as done. A router forgets all of it when the session ends, and
ExaBGP when it ends, so what is in force is announced again every minute. ExaBGP sends on only what is new.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import re
import select
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from superhosts.core.text import printable
from superhosts.output.acts import Act, Actor
from superhosts.output.senders import TIMEOUT, Address, PermanentError, TemporaryError, reason_of

BLACKHOLE = "65535:666"  # RFC 7999


class Bgp(Actor):
    options: ClassVar[tuple[str, ...]] = (
        *Actor.manners,
        *("kind", "next-hop", "next-hop6", "community", "neighbor", "match", "timeout"),
    )

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._pipe = Path(address.path)
        if not self._pipe.is_absolute() or address.netloc:
            raise address.error("name ExaBGP's pipe by its full path, like bgp:/run/exabgp/exabgp.in")
        self._timeout = address.seconds("timeout", TIMEOUT)
        self._kind = address.choice("kind", ("blackhole", "flowspec"), "blackhole")
        self._match = address.choice("match", ("source", "destination"), "source")
        self._hops = {4: self._address("next-hop", 4), 6: self._address("next-hop6", 6)}
        if self._kind == "blackhole" and not any(self._hops.values()):
            raise address.error("kind=blackhole needs next-hop=ADDRESS, to which routers send what they drop")
        communities = address.options.get("community", BLACKHOLE).split(",")
        for each in communities:
            if not re.fullmatch(r"\d{1,5}:\d{1,5}", each):
                raise address.error(f"community={printable(each)}: write it like {BLACKHOLE}")
        self._communities = " ".join(communities)
        neighbor = self._address("neighbor", None)
        self._before = f"neighbor {neighbor} " if neighbor else ""

    def _address(self, name: str, version: int | None) -> str:
        if (text := self.address.options.get(name)) is None:
            return ""
        try:
            found = ipaddress.ip_address(text)
        except ValueError:
            found = None
        if found is None or version not in (None, found.version):
            raise self.address.error(f"{name}={printable(text)}: not an address of IPv{version or '4 or IPv6'}")
        return str(found)

    def put(self, acts: Sequence[Act]) -> None:
        for act in acts:
            if not (rule := self._rule(act)):
                raise PermanentError("next-hop6 is not given" if act.network.version == 6 else "next-hop is not given")
            self._send(f"{self._before}announce {rule}\n".encode())

    def withdraw(self, act: Act) -> None:
        if rule := self._rule(act):
            self._send(f"{self._before}withdraw {rule}\n".encode())

    def _rule(self, act: Act) -> str:
        """Return a route or a rule for a host; empty: there is no next hop for its addresses."""
        network = act.network
        if self._kind == "flowspec":
            return f"flow route {{ match {{ {self._match} {network}; }} then {{ discard; }} }}"
        hop = self._hops[network.version]
        return f"route {network} next-hop {hop} community [{self._communities}]" if hop else ""

    def _send(self, command: bytes) -> None:
        answers = self._pipe.with_suffix(".out")
        with contextlib.ExitStack() as opened:
            out = _open_pipe(answers, os.O_RDONLY) if answers.exists() else None
            if out is not None:
                opened.callback(os.close, out)
                with contextlib.suppress(BlockingIOError):
                    os.read(out, 1 << 16)  # answers to others, or to a command that took too long
            try:
                handle = _open_pipe(self._pipe, os.O_WRONLY)
                opened.callback(os.close, handle)
                written = os.write(handle, command)  # whole or not at all: it is shorter than PIPE_BUF
            except OSError as error:
                why = "ExaBGP does not read" if error.errno in (errno.ENXIO, errno.EAGAIN) else reason_of(error)
                raise TemporaryError(f"{self._pipe}: {why}") from None
            if written < len(command):
                raise TemporaryError(f"{self._pipe}: is full")
            if out is not None:
                self._await(out)

    def _await(self, out: int) -> None:
        said, until = b"", time.monotonic() + self._timeout
        while time.monotonic() < until:
            if select.select([out], [], [], 0.1)[0]:
                with contextlib.suppress(BlockingIOError):
                    if not (found := os.read(out, 4096)):
                        time.sleep(0.01)  # ExaBGP opens this pipe for each answer.
                    said += found
            if b"error" in said:
                raise TemporaryError("ExaBGP answers error: its log says why")
            if b"done" in said:
                return
        raise TemporaryError("ExaBGP does not answer")


def _open_pipe(path: Path, way: int) -> int:
    handle = os.open(path, way | os.O_NONBLOCK)
    if not stat.S_ISFIFO(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a pipe", str(path))
    return handle
