"""Acts of a firewall: `nft:inet/superhosts/blocked` for nftables, `list:/path/file` for everything that reads a list.

nftables: addresses go to the sets `blocked4` and `blocked6` of the table, prefixes to `blocked4net` and `blocked6net`,
with a timeout, so the kernel forgets them if nobody else does. If there is no such table it is made, with these sets
and a chain that drops what they send. A table that is there already keeps its rules: it must have the sets, and what is
done with them is its own affair. Every call is one transaction of the `nft` program.

A list has a line for each host; `format` says which: `plain`, `iprep` (Suricata: address, category, score) or `dataset`
(Suricata's type ip). It is replaced atomically. Lines of others stay; a file that is no such list is not touched.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from time import time as _now
from typing import Any, ClassVar

from superhosts.core.files import open_plain, replacing, sync_folder
from superhosts.core.pairs import Network
from superhosts.core.text import printable
from superhosts.output.acts import Act, Actor
from superhosts.output.senders import Address, PermanentError, TemporaryError, reason_of

LIMIT = 10.0  # seconds that nft may take
MISSING = "No such file or directory"
Command = dict[str, Any]


class Nft(Actor):
    options: ClassVar[tuple[str, ...]] = Actor.manners

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        word = r"[A-Za-z_][A-Za-z0-9_]{0,59}"
        found = re.fullmatch(rf"inet/({word})/({word})", address.path)
        if found is None or address.netloc:
            raise address.error("name a table and the begin of its sets, like nft:inet/superhosts/blocked")
        self._table, self._name = found.groups()
        self._program = shutil.which("nft") or shutil.which("nft", path="/usr/sbin:/sbin")
        if self.acts and self._program is None:
            raise address.error("the program nft is not installed (Debian: the package nftables)")
        self._child: subprocess.Popen[str] | None = None

    def put(self, acts: Sequence[Act]) -> None:
        # An element keeps its first timeout until it is removed, so it is added, removed and added with the new one.
        commands = [
            command
            for act in acts
            for command in (self._add(act), self._delete(act), self._add(act, max(1, round(act.expires - _now()))))
        ]
        trouble = self._run(commands)
        if MISSING in trouble:
            if not self._run([], "list", "table", "inet", self._table):
                sets = ", ".join(sorted({self._set_of(act) for act in acts}))
                raise TemporaryError(f"the table inet {self._table} has no set {sets}; add it with flags timeout")
            trouble = self._run([*self._table_itself(), *commands])
        if trouble:
            raise TemporaryError(trouble)

    def withdraw(self, act: Act) -> None:
        trouble = self._run([self._add(act), self._delete(act)])
        if trouble and MISSING not in trouble:  # Without table or set nothing is in force.
            raise TemporaryError(trouble)

    def abort(self) -> None:
        if (child := self._child) is not None:
            child.kill()

    def _set_of(self, act: Act) -> str:
        network = act.network
        return f"{self._name}{network.version}{'' if network.num_addresses == 1 else 'net'}"

    def _element(self, act: Act, value: Any) -> Command:
        return {"element": {"family": "inet", "table": self._table, "name": self._set_of(act), "elem": [value]}}

    def _add(self, act: Act, timeout: int | None = None) -> Command:
        value = _value(act.network)
        return {"add": self._element(act, value if timeout is None else {"elem": {"val": value, "timeout": timeout}})}

    def _delete(self, act: Act) -> Command:
        return {"delete": self._element(act, _value(act.network))}

    def _table_itself(self) -> Iterable[Command]:
        place = {"family": "inet", "table": self._table}
        hook = {"type": "filter", "hook": "prerouting", "prio": -300, "policy": "accept"}
        yield {"add": {"table": {"family": "inet", "name": self._table}}}
        yield {"add": {"chain": {**place, "name": "drop", **hook}}}
        for version, protocol in ((4, "ip"), (6, "ip6")):
            for ending, flags in (("", ["timeout"]), ("net", ["interval", "timeout"])):
                name = f"{self._name}{version}{ending}"
                yield {"add": {"set": {**place, "name": name, "type": f"ipv{version}_addr", "flags": flags}}}
                source = {"payload": {"protocol": protocol, "field": "saddr"}}
                drop = [{"match": {"op": "==", "left": source, "right": f"@{name}"}}, {"counter": None}, {"drop": None}]
                yield {"add": {"rule": {**place, "chain": "drop", "expr": drop}}}

    def _run(self, commands: Sequence[Command], *words: str) -> str:
        """Run nft; return what is wrong. A child that outlives this process keeps the ledger from the next one."""
        assert self._program is not None
        arguments = [self._program, "-j", *(words or ("-f", "-"))]
        text = json.dumps({"nftables": commands})
        streams: dict[str, Any] = dict.fromkeys(("stdin", "stderr"), subprocess.PIPE)
        streams |= {"stdout": subprocess.DEVNULL, "text": True, "env": {"PATH": os.defpath, "LC_ALL": "C"}}
        kept = () if self.holder is None else (self.holder.fileno(),)
        try:
            with subprocess.Popen(arguments, pass_fds=kept, **streams) as child:
                self._child = child
                try:
                    _, said = child.communicate(text, LIMIT)
                finally:
                    self._child = None
                    child.kill()
        except subprocess.TimeoutExpired:
            raise TemporaryError(f"nft took longer than {LIMIT:g} s") from None
        except OSError as error:
            raise TemporaryError(f"nft cannot be run: {reason_of(error)}") from None
        wrong = (line for line in said.splitlines() if line.strip())
        return "" if child.returncode == 0 else printable(next(wrong, f"nft ended with status {child.returncode}"))


def _value(network: Network) -> Any:
    if network.num_addresses == 1:
        return str(network.network_address)
    return {"prefix": {"addr": str(network.network_address), "len": network.prefixlen}}


class ListFile(Actor):
    options: ClassVar[tuple[str, ...]] = (*Actor.manners, "format", "category", "score")
    formats = ("plain", "iprep", "dataset")

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._path = Path(address.path)
        if not self._path.is_absolute() or address.netloc:
            raise address.error("name a file by its full path, like list:/etc/superhosts/blocked.txt")
        self._numbers = ""
        if self.format == "iprep":
            self._numbers = f",{_number(address, 'category', '1', 60)},{_number(address, 'score', '100', 127)}"
        elif foreign := {"category", "score"} & set(address.options):
            raise address.error(f"{min(foreign)} belongs to format=iprep")

    def put(self, acts: Sequence[Act]) -> None:
        if self.format == "dataset" and any(act.network.num_addresses > 1 for act in acts):
            raise PermanentError("a dataset has addresses, no prefixes")
        lines = self._read()
        self._write(lines, [*lines, *(line for line in map(self._line, acts) if line not in lines)])

    def withdraw(self, act: Act) -> None:
        lines = self._read()
        self._write(lines, [line for line in lines if line != self._line(act)])

    def _line(self, act: Act) -> str:
        network = act.network
        return f"{network.network_address if network.num_addresses == 1 else network}{self._numbers}"

    def _read(self) -> list[str]:
        try:
            with open_plain(self._path) as file:
                lines = file.read().decode().splitlines()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise TemporaryError(f"it cannot be read: {reason_of(error)}") from None
        for number, line in enumerate(lines, 1):
            if not (line.strip().startswith("#") or not line.strip() or _is_entry(line)):
                raise TemporaryError(f"it is no list of addresses (line {number}); name another file")
        return lines

    def _write(self, before: Sequence[str], lines: Sequence[str]) -> None:
        if lines == before:
            return
        try:
            mode = self._path.stat().st_mode & 0o777 if self._path.exists() else None
            with replacing(self._path, sole=True) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
                if mode is not None:
                    temporary.chmod(mode)
            with suppress(OSError):  # It is there all the same.
                sync_folder(self._path.parent)
        except OSError as error:
            raise TemporaryError(f"it cannot be written: {reason_of(error)}") from None


def _is_entry(line: str) -> bool:
    with suppress(ValueError):
        ipaddress.ip_network(line.partition(",")[0].partition("#")[0].strip(), strict=False)
        return True
    return False


def _number(address: Address, name: str, default: str, most: int) -> int:
    text = address.options.get(name, default)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= most):
        raise address.error(f"{name}={printable(text)}: write a number from 1 to {most}")
    return int(text)
