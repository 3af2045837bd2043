"""Who may ask: a token where others can reach the port, known host names, and no requests of other pages.

A browser sends requests for any page that it shows. Two checks keep other pages away from a dashboard without a token:
the Host header must be a name of this machine (a page whose own name was pointed to 127.0.0.1 sends another one), and a
request that changes or asks something must come from the dashboard itself: a picture of another page could start
questions that take minutes, although that page never reads the answer.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from superhosts.core.files import os_errors
from superhosts.core.units import Place
from superhosts.errors import UsageError

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
LEAST_TOKEN = 16  # characters of a token that somebody has chosen


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Certificate:
    """The certificate of a dashboard over HTTPS. Connections that are made after `load` get that of the files then."""

    def __init__(self, cert: Path, key: Path | None = None) -> None:
        import ssl  # 8 ms, which dashboards without a certificate do not wait for

        self._cert, self._key = cert, key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load()

    def load(self) -> None:
        """Read the files. Raise UsageError if they cannot be used; then the certificate stays as it was."""
        import ssl

        names = f"--web-cert {self._cert}" + (f" and --web-key {self._key}" if self._key else "")
        for path in filter(None, (self._cert, self._key)):
            with os_errors(f"{names}: {path} cannot be read", UsageError), path.open("rb"):
                pass
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):  # half of a pair would be left in it
            try:
                context.load_cert_chain(self._cert, self._key, password=lambda: "")  # or a terminal is asked for it
            except (OSError, ValueError) as error:
                way = "give a certificate in PEM, and the private key that belongs to it, without a passphrase"
                raise UsageError(f"{names}: {getattr(error, 'reason', None) or error}; {way}") from None


ANYBODY, OWNER, VIEWER = "anybody", "token", "viewer token"  # who asks: without a token, or with one of two


@dataclass(frozen=True)
class Access:
    """What a request must bring. `names`: host names besides those of this machine, as a reverse proxy has them.

    Whoever has the token of viewers may look, and change nothing.
    """

    place: Place
    token: str | None = None
    names: frozenset[str] = frozenset()
    viewer: str | None = None
    certificate: Certificate | None = None

    @property
    def cookie(self) -> str:
        """The name of the cookie: browsers send cookies to all ports of a host."""
        return f"superhosts_{self.place.port}"

    @property
    def _tokens(self) -> dict[str, str]:
        return {holder: token for holder, token in ((OWNER, self.token), (VIEWER, self.viewer)) if token is not None}

    def cookie_value(self, holder: str) -> str:
        """Return what the cookie says: it proves the token, and does not show it."""
        return hmac.new(self._tokens[holder].encode(), b"superhosts cookie", hashlib.sha256).hexdigest()

    def knows_host(self, header: str) -> bool:
        try:
            name = (urlsplit(f"//{header}").hostname or "").lower()
        except ValueError:
            name = ""
        if name in LOCAL_NAMES | self.names | {self.place.host}:
            return True
        # Whoever reaches another address has a token, which a page under a false name does not.
        return self.token is not None and not is_loopback(self.place.host) and bool(name)

    def is_own(self, headers: Mapping[str, str]) -> bool:
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        if origin is None:
            return True  # no browser
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.netloc.lower() == headers.get("host", "").lower() or (parts.hostname or "") in self.names

    def holder(self, headers: Mapping[str, str]) -> str | None:
        """Return who asks, by the token in a header or the cookie; None: nobody who may."""
        if self.token is None:
            return ANYBODY
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.holder_of(given.strip())
        cookies = [each.strip().partition("=") for each in headers.get("cookie", "").split(";")]  # of others, too
        own = [value for name, _, value in cookies if name == self.cookie]
        wanted = {holder: self.cookie_value(holder) for holder in self._tokens}
        return next((holder for holder in wanted if any(_same(value, wanted[holder]) for value in own)), None)

    def holder_of(self, given: str) -> str | None:
        """Return whose token this is."""
        return next((holder for holder, token in self._tokens.items() if _same(given, token)), None)


def _same(given: str, wanted: str) -> bool:
    """Compare in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
