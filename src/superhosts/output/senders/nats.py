"""NATS: `nats://host:4222/subject`, one message for each record; `nats+tls://` insists on TLS.

With `jetstream=on` each message waits until a stream has stored it, else until the server has it. The header
`Nats-Msg-Id` is the id of the record, so a stream drops repeats. Servers of a cluster are separated by commas.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Any, ClassVar

from superhosts.errors import MissingExtraError
from superhosts.output.records import Batch
from superhosts.output.senders import TIMEOUT, Address, Sender, TemporaryError, reason_of

try:
    import nats.errors
    import nats.js.errors
    from nats.aio.client import Client
except ImportError:
    raise MissingExtraError("nats://", "fleet") from None


class _TlsClient(Client):
    """A client that never sends credentials without TLS, whatever the server offers."""

    def _connect_command(self) -> bytes:
        if not self._server_info.get("tls_required") and not self._server_info.get("tls_available"):
            raise nats.errors.Error("the server offers no TLS")
        return super()._connect_command()


class Nats(Sender):
    options: ClassVar[tuple[str, ...]] = (
        *("jetstream", "format", "creds", "nkey", "password-file", "timeout", "ca", "cert", "key"),
    )

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._is_tls = address.scheme == "nats+tls"
        self._subject = address.path.strip("/")
        if not re.fullmatch(r"[^\s*>.]+(\.[^\s*>.]+)*", self._subject):
            raise address.error("name a subject, like nats://127.0.0.1:4222/superhosts.rows")
        self._stored = address.choice("jetstream", ("on", "off"), "off") == "on"
        self._timeout = address.seconds("timeout", TIMEOUT)
        scheme = "tls" if self._is_tls else "nats"
        self._servers = [f"{scheme}://{place}" for place in address.place.split(",") if place]
        if not self._servers:
            raise address.error("name a server, like nats://127.0.0.1:4222/superhosts.rows")
        for name in ("creds", "nkey", "password-file"):
            address.file(name)
        if self._is_tls:
            address.tls()

    def deliver(self, batch: Batch) -> None:
        """Publish the records of a batch over a new connection: windows are minutes apart."""
        try:
            asyncio.run(self._publish(batch))
        except nats.js.errors.NoStreamResponseError:
            raise TemporaryError(f"no stream stores the subject {self._subject}") from None
        except nats.js.errors.APIError as error:
            raise TemporaryError(f"the server refuses: {error.description}") from None
        except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
            raise TemporaryError(_words(error)) from None

    async def _publish(self, batch: Batch) -> None:
        client = _TlsClient() if self._is_tls else Client()
        seen: list[Exception] = []

        async def note(error: Exception) -> None:
            seen.append(error)

        try:
            async with asyncio.timeout(4 * self._timeout):
                try:
                    await client.connect(self._servers, error_cb=note, **self._settings())
                    if not client.is_connected:
                        raise ConnectionResetError
                except nats.errors.NoServersError:
                    raise (seen[0] if seen else TimeoutError()) from None
                jetstream = client.jetstream(timeout=self._timeout)
                for record in batch.records:
                    body, headers = self.line(record).encode(), {"Nats-Msg-Id": str(record["id"])}
                    if self._stored:
                        await jetstream.publish(self._subject, body, headers=headers)
                    else:
                        await client.publish(self._subject, body, headers=headers)
                await client.flush(int(self._timeout) or 1)
                if seen:  # the server may refuse the subject
                    raise seen[0]
        finally:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(1.0):
                    await client.close()

    def _settings(self) -> dict[str, Any]:
        address = self.address
        creds, nkey = address.file("creds"), address.file("nkey")
        return {
            "allow_reconnect": False,
            "connect_timeout": int(self._timeout) or 1,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "tls": address.tls() if self._is_tls else None,
            "user": address.user or None,
            "password": address.read_password() or None,
            "user_credentials": None if creds is None else str(creds),
            "nkeys_seed": None if nkey is None else str(nkey),
        }


def _words(error: BaseException) -> str:
    if "authorization violation" in str(error).lower():
        return "the server does not accept these credentials"
    if isinstance(error, nats.errors.Error):
        return str(error).removeprefix("nats: ").strip("'") or type(error).__name__
    return reason_of(error)
