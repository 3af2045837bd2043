"""Webhooks: `webhook+https://host/path?format=slack`, one POST for the records of a window.

docs/guides/destinations.md has the options. Other words of the query belong to the receiver. Requests have the headers
of the Standard Webhooks convention: `webhook-id` is the same when a request is repeated, so that a receiver can drop
repeats; with a secret, `webhook-signature` is `v1,` and the Base64 of the HMAC-SHA256 of `id.timestamp.body`. A secret
that begins with `whsec_` is Base64, as the convention has it; any other counts as it is written.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

from superhosts import __version__
from superhosts.core.text import printable
from superhosts.output.mappings import FORMATS, shaped
from superhosts.output.records import CLOSED, Batch, Record, describe, heading, links_of, shown_lines
from superhosts.output.senders import TIMEOUT, Address, PermanentError, Sender, TemporaryError, read_secret, reason_of

OPTIONS = ("timeout", "ca", "cert", "key", "password-file", "token-file")
PERMANENT = {400, 413, 415, 422}  # The content is refused; other answers may change when an operator mends something.
MOST_ANSWER = 16 << 20  # bytes of an answer that are read
LONGEST_WAIT = 300.0  # seconds that a receiver may ask for
Body = dict[str, Any]


class Webhook(Sender):
    options: ClassVar[tuple[str, ...]] = ("format", "template", "secret-file", "routing-key-file", *OPTIONS)
    formats = ("json", "slack", "teams", "pagerduty", *FORMATS)
    hides_path = True
    passes_query = True

    def __init__(self, address: Address) -> None:
        if (template := address.options.get("template")) is not None:  # what `format` was called first
            if "format" in address.options:
                raise address.error("template and format are the same option; give format alone")
            address = replace(address, options={**address.options, "format": template})
        super().__init__(address)
        self._client = HttpClient(address)
        self._secret, self._key = address.file("secret-file"), address.file("routing-key-file")
        if self.format == "pagerduty" and self._key is None:
            raise address.error("format=pagerduty: name the file of the integration key: routing-key-file=FILE")

    def deliver(self, batch: Batch) -> None:
        try:
            key = "" if self._key is None else read_secret(self._key)
            secret = None if self._secret is None else secret_bytes(read_secret(self._secret))
        except (OSError, ValueError) as error:
            raise TemporaryError(str(error)) from None
        bodies = TEMPLATES[self.format](batch, key) if self.format in TEMPLATES else as_events(batch, self.format)
        kind = {"Content-Type": "text/plain; charset=utf-8"} if self.format == "cef" else {}
        for number, content in self.remaining(batch, bodies):
            name = batch.id if not number else f"{batch.id}-{number}"
            body = (content if isinstance(content, str) else json.dumps(content)).encode()
            self._client.post(body, kind | signed(name, body, secret))


def signed(name: str, body: bytes, secret: bytes | None) -> dict[str, str]:
    moment = str(int(time.time()))
    headers = {"webhook-id": name, "webhook-timestamp": moment}
    if secret is not None:
        digest = hmac.digest(secret, b"%s.%s.%s" % (name.encode(), moment.encode(), body), hashlib.sha256)
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def secret_bytes(text: str) -> bytes:
    if text.startswith("whsec_"):
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    return text.encode()


# Templates return the bodies of the requests of one batch. Chats get one message per batch that lists at most `SHOWN`
# hosts; PagerDuty takes one event per request.


def as_json(batch: Batch, _key: str) -> Iterator[Body]:
    yield batch.as_json()


def as_events(batch: Batch, format: str) -> Iterator[Any]:
    """Yield the records in a format of others: a list of events, or lines of CEF."""
    events = [shaped(record, format) for record in batch.records]
    if events:
        yield "\n".join(events) if format == "cef" else events


def as_slack(batch: Batch, _key: str) -> Iterator[Body]:
    """Yield a message for an incoming webhook of Slack (Mattermost and Rocket.Chat take it, too)."""
    yield {"text": "\n".join([f"*{_slack(heading(batch))}*", *(f"• {_slack(line)}" for line in shown_lines(batch))])}


def _slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_teams(batch: Batch, _key: str) -> Iterator[Body]:
    """Yield an adaptive card for a workflow of Teams ("When a Teams webhook request is received")."""
    title = {"type": "TextBlock", "text": _teams(heading(batch)), "weight": "Bolder", "wrap": True}
    lines = [
        {"type": "TextBlock", "text": _teams(line), "wrap": True, "spacing": "None"} for line in shown_lines(batch)
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [title, *lines],
    }
    if links := links_of(batch.records):
        card["actions"] = [{"type": "Action.OpenUrl", "title": host, "url": url} for host, url in links]
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}
    yield {"type": "message", "attachments": [content]}


def _teams(text: str) -> str:
    """Return text that a card does not take for Markdown."""
    return re.sub(r"([\\`*_~\[\]<>])", r"\\\1", text)


def as_pagerduty(batch: Batch, key: str) -> Iterator[Body]:
    """Yield an event of PagerDuty's Events API v2 for each record.

    Events of one alert share a key, so that it is one incident, which is resolved when the alert is closed. Rows of one
    host share a key, so that a host that stays over the threshold is one incident; nothing resolves it.
    """
    for record in batch.records:
        links = [{"href": url, "text": f"{host} in the dashboard"} for host, url in links_of([record])]
        yield {
            "routing_key": key,
            "event_action": "resolve" if record.get("event") == CLOSED else "trigger",
            "dedup_key": identity(record),
            **({"links": links} if links else {}),
            "payload": {
                "summary": (describe(record) if "text" in record else f"Super host {describe(record)}")[:1024],
                "source": str(record.get("host") or record["site"] or "superhosts"),
                "severity": record.get("severity", "warning"),
                "timestamp": next(
                    (record[name] for name in ("closed", "until", "window_end") if record.get(name)), batch.window_end
                ),
                "group": record["site"] or "superhosts",
                "class": record["kind"],
                "custom_details": record,
            },
        }


def identity(record: Record) -> str:
    """Return what records of the same alert, or rows of the same host in other windows, share."""
    names = ("kind", "site", "alert") if record.get("alert") else ("kind", "site", "group", "host", "side", "direction")
    parts = (record.get(name) for name in names)
    return "/".join(str(part) for part in ("superhosts", *parts) if part)[:255]


TEMPLATES: dict[str, Callable[[Batch, str], Iterator[Body]]] = {
    "json": as_json,
    "slack": as_slack,
    "teams": as_teams,
    "pagerduty": as_pagerduty,
}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: a report goes where the operator has sent it."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return None: the answer becomes an error."""


class HttpClient:
    """Posts to the receiver of one address, `KIND+http://…` or `KIND+https://…`.

    `word`: of the header that has the token. Proxies come from the environment, as usual (https_proxy).
    """

    def __init__(self, address: Address, path: str = "", word: str = "Bearer") -> None:
        """Check the address; `path` is appended to it."""
        scheme = address.scheme.partition("+")[2]
        address.host_and_port(80)
        whole = f"{address.path.rstrip('/')}{path}" if path else address.path
        self.url = f"{scheme}://{address.place}{whole}" + (f"?{address.query}" if address.query else "")
        self._address, self._word = address, word
        self._timeout = address.seconds("timeout", TIMEOUT)
        self._is_tls = scheme == "https"
        for name in ("password-file", "token-file"):
            address.file(name)
        if self._is_tls:
            address.tls()

    def post(self, body: bytes, headers: dict[str, str]) -> bytes:
        """Post and return the answer. Raises TemporaryError or PermanentError if the receiver does not take it."""
        everything = {"Content-Type": "application/json", "User-Agent": f"superhosts/{__version__}", **headers}
        everything |= self._credentials()
        request = urllib.request.Request(self.url, body, everything, method="POST")
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if self._is_tls:
            handlers.append(urllib.request.HTTPSHandler(context=self._address.tls()))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=self._timeout) as answer:
                return bytes(answer.read(MOST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise TemporaryError(reason_of(error)) from None

    def _credentials(self) -> dict[str, str]:
        """Return the header that says who this is. Files are read each time, so that new secrets count at once."""
        try:
            if (token := self._address.file("token-file")) is not None:
                return {"Authorization": f"{self._word} {read_secret(token)}"}
            if self._address.user:
                both = base64.b64encode(f"{self._address.user}:{self._address.read_password()}".encode()).decode()
                return {"Authorization": f"Basic {both}"}
        except (OSError, ValueError) as error:
            raise TemporaryError(str(error)) from None
        return {}


def _refusal(error: urllib.error.HTTPError) -> Exception:
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
