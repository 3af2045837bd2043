"""Apprise: `apprise:URL` for the hundred and more services that this package knows (Discord, Telegram, Matrix, ntfy …).

The title and the text are those for people. URLs of Apprise hold tokens, so write the address to a file and give
`--output @FILE`.
"""

from __future__ import annotations

import warnings
from typing import Any

from superhosts.errors import import_extra
from superhosts.output.records import CLOSED, GROWN, OPENED, Batch, heading, shown_lines
from superhosts.output.senders import Address, Sender, TemporaryError

apprise = import_extra("apprise:", "apprise", "apprise")


class Apprise(Sender):
    hides_path = True

    @classmethod
    def open(cls, text: str, *, private: bool = False) -> Apprise:
        """Return the sender of an address, all of whose options belong to Apprise."""
        scheme, _, url = text.partition(":")
        return cls(Address(text, scheme, path=url, hides_path=True))

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._notifier: Any = apprise.Apprise()
        with warnings.catch_warnings():  # It loads all services now, and with them modules that Python will remove.
            warnings.simplefilter("ignore", DeprecationWarning)
            known = self._notifier.add(address.path)
        if not known:
            raise address.error("Apprise does not know such a URL")

    def deliver(self, batch: Batch) -> None:
        body = "\n".join(shown_lines(batch)) or "no hosts any more"
        events = {record.get("event") for record in batch.records}
        kind = "warning" if events & {OPENED, GROWN} else "success" if events == {CLOSED} else "info"
        if not self._notifier.notify(title=heading(batch), body=body, notify_type=kind):
            raise TemporaryError("Apprise could not deliver")
