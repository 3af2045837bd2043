"""Webhooks: `webhook+https://host/path?template=slack`, one POST of JSON for the records of a window.

| option | what it says |
|---|---|
| `template` | `json` (the batch, the default), `slack`, `teams` or `pagerduty` |
| `secret-file` | a file with the secret of signatures |
| `routing-key-file` | for PagerDuty: a file with the integration key |
| `token-file` | a file with a token: `Authorization: Bearer …` |
| `password-file` | a file with the password of `user@` |
| `timeout`, `ca`, `cert`, `key` | seconds for an answer; PEM files for TLS |

Other words of the query belong to the receiver. Requests have the headers of the Standard Webhooks convention:
`webhook-id` is the same when a request is repeated, so that a receiver can drop repeats; `webhook-timestamp` is in
seconds; with a secret, `webhook-signature` is `v1,` and the Base64 of the HMAC-SHA256 of `id.timestamp.body`. A secret
that begins with `whsec_` is Base64, as the convention has it; any other counts as it is written.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import ClassVar

from superhosts.output.addresses import Address, read_secret
from superhosts.output.batches import Batch
from superhosts.output.senders.base import Sender, TemporaryError
from superhosts.output.senders.http import OPTIONS, HttpClient
from superhosts.output.senders.templates import TEMPLATES


class Webhook(Sender):
    """Posts batches as JSON."""

    options: ClassVar[tuple[str, ...]] = ("template", "secret-file", "routing-key-file", *OPTIONS)
    hides_path = True
    passes_query = True

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._template = address.choice("template", tuple(TEMPLATES), "json")
        self._client = HttpClient(address)
        self._secret, self._key = address.file("secret-file"), address.file("routing-key-file")
        if self._template == "pagerduty" and self._key is None:
            raise address.error("template=pagerduty: name the file of the integration key: routing-key-file=FILE")
        self._begun = ""  # the batch of which some requests were answered
        self._answered = 0

    def deliver(self, batch: Batch) -> None:
        """Post the batch. A second attempt goes on with the first request that was not answered."""
        if batch.id != self._begun:
            self._begun, self._answered = batch.id, 0
        try:
            key = "" if self._key is None else read_secret(self._key)
            secret = None if self._secret is None else secret_bytes(read_secret(self._secret))
        except (OSError, ValueError) as error:
            raise TemporaryError(str(error)) from None
        for number, content in enumerate(TEMPLATES[self._template](batch, key)):
            if number < self._answered:
                continue
            name = batch.id if not number else f"{batch.id}-{number}"
            body = json.dumps(content).encode()
            self._client.post(body, signed(name, body, secret))
            self._answered += 1


def signed(name: str, body: bytes, secret: bytes | None) -> dict[str, str]:
    """Return the headers of a request."""
    moment = str(int(time.time()))
    headers = {"webhook-id": name, "webhook-timestamp": moment}
    if secret is not None:
        digest = hmac.digest(secret, b"%s.%s.%s" % (name.encode(), moment.encode(), body), hashlib.sha256)
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def secret_bytes(text: str) -> bytes:
    """Return the key of signatures. Raises ValueError."""
    if text.startswith("whsec_"):
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    return text.encode()
