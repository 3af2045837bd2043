"""The interface of a sender: it delivers one batch of records to a receiver.

A sender is one class in one file, and one line in the list of `opening.py`. Its constructor checks the address and
opens no connection, because the receiver may be down at the moment. `deliver` is called in a thread of its own, one
batch after the other. It returns when the receiver has the batch, or raises

* `TemporaryError` if the receiver may take it later: it does not answer, or refuses credentials that an operator can
  mend. The same batch comes again, after pauses that grow.
* `PermanentError` if the receiver will never take this batch. It is dropped and counted.

A batch may be delivered twice. Records and batches have ids by which a receiver can tell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from superhosts.output.addresses import Address, parse_address
from superhosts.output.batches import Batch, Record

TIMEOUT = "10s"  # of a receiver that does not answer


class TemporaryError(Exception):
    """The receiver does not take a batch now. `after`: the least number of seconds before the next attempt."""

    def __init__(self, message: str, *, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


class PermanentError(Exception):
    """The receiver will never take this batch."""


class Sender(ABC):
    """Delivers batches to one receiver."""

    options: ClassVar[tuple[str, ...]] = ()  # that its addresses take
    hides_path: ClassVar[bool] = False  # paths of its addresses may hold tokens
    passes_query: ClassVar[bool] = False  # unknown options belong to the receiver
    most_records: ClassVar[int | None] = 1000  # of a batch; None: a whole window
    repeat_after: float | None = None  # seconds after which open alerts are sent again; None: the receiver keeps them

    def __init__(self, address: Address) -> None:
        self.address = address
        self.open_alerts: Sequence[Record] = ()  # that `repeat` sends; another thread may replace them

    @classmethod
    def open(cls, text: str, *, private: bool = False) -> Sender:
        """Return the sender of an address. Raises UsageError, or MissingExtraError."""
        return cls(
            parse_address(text, cls.options, private=private, hides_path=cls.hides_path, passes_query=cls.passes_query)
        )

    @abstractmethod
    def deliver(self, batch: Batch) -> None:
        """Deliver a batch, or raise TemporaryError or PermanentError."""

    def repeat(self) -> None:  # noqa: B027  # most receivers forget no alert
        """Send the open alerts again, or raise TemporaryError or PermanentError. Called as `repeat_after` says."""

    def abort(self) -> None:  # noqa: B027  # most senders are ended by their time limits
        """End a delivery that is under way, from another thread: the program ends."""

    def close(self) -> None:  # noqa: B027  # some senders have nothing to close
        """Close connections."""


def reason_of(error: BaseException) -> str:
    """Return the reason of an error of the system or of TLS, for people."""
    inner = getattr(error, "reason", None)
    if isinstance(inner, BaseException):
        return reason_of(inner)
    if isinstance(error, TimeoutError):
        return "it does not answer"
    verify = getattr(error, "verify_message", None)
    if verify:
        return f"its certificate is not trusted ({verify})"
    return str(getattr(error, "strerror", None) or inner or error or type(error).__name__)
