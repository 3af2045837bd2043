"""Syslog: one message of RFC 5424 for each record, over UDP (RFC 5426), TCP (RFC 6587, with lengths) or TLS (RFC 5425).

With `format=text`, the default, the fields of the record are structured data and the message is a line for people. With
`format=json` the message is the record, and the structured data has its id alone; in formats of others, like `cef`, the
message is the event, which has the id, and there is no structured data. The name of the structured data needs
the number of an enterprise. We have none, so it is `superhosts@32473`, where 32473 is the number that RFC 5612 reserves
for examples; `sd-id=` takes your own.

No syslog transport acknowledges messages. A datagram may be lost; over TCP, what was in flight when a connection broke
is sent again with the whole batch if the system reports the break, else it is lost.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import select
import socket
from datetime import UTC, datetime
from typing import Any, ClassVar

from superhosts.output.mappings import FORMATS
from superhosts.output.records import Batch, Record, describe
from superhosts.output.senders import TIMEOUT, Address, PermanentError, Sender, TemporaryError, reason_of

FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("ntp", "audit", "alert", "clock", *(f"local{number}" for number in range(8))),
)
SEVERITIES = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
PORTS = {"syslog": 514, "syslog+tcp": 601, "syslog+tls": 6514}
SD_ID = "superhosts@32473"


class Syslog(Sender):
    options: ClassVar[tuple[str, ...]] = (
        *("facility", "severity", "app", "sd-id", "format", "timeout", "ca", "cert", "key"),
    )

    formats = ("text", *Sender.formats)

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._place = address.host_and_port(PORTS[address.scheme])
        facility = address.choice("facility", FACILITIES, "daemon")
        severity = address.choice("severity", SEVERITIES, "notice")
        self._priority = 8 * FACILITIES.index(facility) + SEVERITIES.index(severity)
        self._app = _word(address, "app", "superhosts", 48)
        self._sd_id = _word(address, "sd-id", SD_ID, 32)
        self._timeout = address.seconds("timeout", TIMEOUT)
        self._is_udp = address.scheme == "syslog"
        if address.scheme == "syslog+tls":
            address.tls()  # reports files that cannot be used now, not when the first window closes
        self._socket: socket.socket | None = None

    def deliver(self, batch: Batch) -> None:
        messages = [self.message(record) for record in batch.records]
        try:
            connected = self._connected()
            for message in messages:
                if self._is_udp:
                    connected.send(message)
                else:
                    connected.sendall(b"%d %s" % (len(message), message))
        except OSError as error:
            self.close()
            if error.errno == errno.EMSGSIZE:
                raise PermanentError("a message is too long for a datagram; use syslog+tcp://") from None
            raise TemporaryError(reason_of(error)) from None

    def message(self, record: Record) -> bytes:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        host = re.sub(r"[^!-~]", "", socket.gethostname())[:255] or "-"
        kind = re.sub(r"[^!-~]", "", str(record["kind"]))[:32] or "-"
        fields = {name: record[name] for name in (("id",) if self.format != "text" else record) if name != "text"}
        data = f"[{self._sd_id}{''.join(_parameter(name, value) for name, value in fields.items())}]"
        data = "-" if self.format in FORMATS else data
        text = describe(record) if self.format == "text" else self.line(record)
        line = f"<{self._priority}>1 {now} {host} {self._app} {os.getpid()} {kind} {data} "
        # A byte order mark says that text is UTF-8 (RFC 5424, section 6.4); ASCII needs none. CEF begins with "CEF:".
        mark = b"" if text.isascii() or self.format == "cef" else b"\xef\xbb\xbf"
        return line.encode() + mark + text.encode(errors="replace")

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is not None and not self._is_udp and _is_closed(self._socket, self._timeout):
            self.close()
        if self._socket is None:
            self._socket = self._connect()
        return self._socket

    def _connect(self) -> socket.socket:
        if not self._is_udp:
            plain = socket.create_connection(self._place, self._timeout)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self.address.scheme != "syslog+tls":
                return plain
            try:
                return self.address.tls().wrap_socket(plain, server_hostname=self._place[0])
            except BaseException:
                plain.close()
                raise
        family, kind, number, _, place = socket.getaddrinfo(*self._place, type=socket.SOCK_DGRAM)[0]
        datagrams = socket.socket(family, kind, number)
        datagrams.settimeout(self._timeout)
        datagrams.connect(place)  # so that the system reports a port where nobody listens
        return datagrams


def _is_closed(connected: socket.socket, timeout: float) -> bool:
    """Return True if the receiver, which never sends anything, has closed a connection."""
    if not select.select([connected], [], [], 0)[0]:
        return False
    connected.settimeout(0.0)
    try:
        return connected.recv(4096) == b""
    except (BlockingIOError, InterruptedError):
        return False
    except OSError as error:
        return "want" not in str(getattr(error, "reason", "")).lower()  # TLS has sent something of its own
    finally:
        connected.settimeout(timeout)


def _word(address: Address, name: str, default: str, most: int) -> str:
    """Return an option that is a word of printable ASCII, as the header of a message needs it."""
    text = address.options.get(name, default)
    if len(text) > most or not re.fullmatch(r"[!#-<>-\\^-~]+", text):
        raise address.error(f'{name}: use 1 to {most} printable ASCII characters without spaces, ", = and ]')
    return text


def _parameter(name: str, value: Any) -> str:
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, (dict, list)):
        text = json.dumps(value, separators=(",", ":"))
    else:
        text = str(value)
    escaped = re.sub(r'(["\\\]])', r"\\\1", text)
    return f' {re.sub(r"[^!#-<>-Z^-~]", "_", name)[:32]}="{escaped}"'
