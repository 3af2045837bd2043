"""Requests over HTTP, for the senders that need them. Proxies come from the environment, as usual (https_proxy)."""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.error
import urllib.request
from typing import Any

from superhosts import __version__
from superhosts.core.text import printable
from superhosts.output.addresses import Address, read_secret
from superhosts.output.senders.base import TIMEOUT, PermanentError, TemporaryError, reason_of

OPTIONS = ("timeout", "ca", "cert", "key", "password-file", "token-file")
PERMANENT = {400, 413, 415, 422}  # The content is refused; other answers may change when an operator mends something.
LONGEST_WAIT = 300.0  # seconds that a receiver may ask for


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: a report goes where the operator has sent it."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None: the answer becomes an error."""


class HttpClient:
    """Posts JSON to the receiver of one address, `KIND+http://…` or `KIND+https://…`."""

    def __init__(self, address: Address, path: str = "") -> None:
        """Check the address; `path` is appended to it."""
        scheme = address.scheme.partition("+")[2]
        address.host_and_port(80)
        whole = f"{address.path.rstrip('/')}{path}" if path else address.path
        self.url = f"{scheme}://{address.place}{whole}" + (f"?{address.query}" if address.query else "")
        self._address = address
        self._timeout = address.seconds("timeout", TIMEOUT)
        self._is_tls = scheme == "https"
        for name in ("password-file", "token-file"):
            address.file(name)
        if self._is_tls:
            address.tls()

    def post(self, body: bytes, headers: dict[str, str]) -> None:
        """Post a body. Raises TemporaryError or PermanentError."""
        everything = {"Content-Type": "application/json", "User-Agent": f"superhosts/{__version__}", **headers}
        everything |= self._credentials()
        request = urllib.request.Request(self.url, body, everything, method="POST")
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if self._is_tls:
            handlers.append(urllib.request.HTTPSHandler(context=self._tls()))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=self._timeout) as answer:
                answer.read(65536)
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TemporaryError(reason_of(error)) from None

    def _tls(self) -> ssl.SSLContext:
        return self._address.tls()

    def _credentials(self) -> dict[str, str]:
        """Return the header that says who this is. Files are read each time, so that new secrets count at once."""
        try:
            if (token := self._address.file("token-file")) is not None:
                return {"Authorization": f"Bearer {read_secret(token)}"}
            if self._address.user:
                file = self._address.file("password-file")
                password = self._address.password if file is None else read_secret(file)
                both = base64.b64encode(f"{self._address.user}:{password}".encode()).decode()
                return {"Authorization": f"Basic {both}"}
        except (OSError, ValueError) as error:
            raise TemporaryError(str(error)) from None
        return {}


def _refusal(error: urllib.error.HTTPError) -> Exception:
    """Return the error for an answer that is no success."""
    try:
        said = printable(error.read(200).decode("utf-8", "replace").strip())
    except (OSError, http.client.HTTPException):
        said = ""
    text = f"it answers {error.code} {error.reason}" + (f": {said}" if said else "")
    if 300 <= error.code < 400:
        return TemporaryError(f"{text}; redirects are not followed, so give the final address")
    if error.code in PERMANENT:
        return PermanentError(text)
    wait = error.headers.get("Retry-After", "") if error.headers else ""
    return TemporaryError(text, after=min(float(wait), LONGEST_WAIT) if wait.isdecimal() else 0.0)
