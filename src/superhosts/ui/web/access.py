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
from urllib.parse import urlsplit

from superhosts.core.units import Place

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
LEAST_TOKEN = 16  # characters of a token that somebody has chosen


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def new_token() -> str:
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Access:
    """What a request must bring. `names`: host names besides those of this machine, as a reverse proxy has them."""

    place: Place
    token: str | None = None
    names: frozenset[str] = frozenset()

    @property
    def cookie(self) -> str:
        """The name of the cookie: browsers send cookies to all ports of a host."""
        return f"superhosts_{self.place.port}"

    @property
    def cookie_value(self) -> str:
        """What the cookie says: it proves the token, and does not show it."""
        return hmac.new((self.token or "").encode(), b"superhosts cookie", hashlib.sha256).hexdigest()

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

    def has_token(self, headers: Mapping[str, str]) -> bool:
        """Return True if no token is needed, or the right one is there, in a header or as the cookie."""
        if self.token is None:
            return True
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.is_token(given.strip())
        cookies = (each.strip().partition("=") for each in headers.get("cookie", "").split(";"))  # of others, too
        return any(name == self.cookie and _same(value, self.cookie_value) for name, _, value in cookies)

    def is_token(self, given: str) -> bool:
        return self.token is not None and _same(given, self.token)


def _same(given: str, wanted: str) -> bool:
    """Compare in a time that does not depend on where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
