"""Links over NATS, as the options of `edge` and `hub` describe them.

Everything here needs the optional packages of `superhosts[fleet]`: commands import this module when a link over NATS is
asked for. Links by files do without it.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from superhosts.cli._options import LinkOptions
from superhosts.cli.usage.fleet import BROKER_CAP, LISTEN, Hub
from superhosts.core.files import exposure_warning
from superhosts.core.notices import WARNING, Notice
from superhosts.core.units import parse_size
from superhosts.errors import UsageError
from superhosts.fleet.nats.broker import Broker, Tls
from superhosts.fleet.nats.credentials import NatsOptions
from superhosts.fleet.nats.receive import NatsReceiver, own_identity
from superhosts.fleet.nats.send import NatsSender
from superhosts.fleet.sites import Quotas
from superhosts.output.console import tell
from superhosts.ui.service import Reloads

__all__ = ["NatsOptions", "NatsSender", "link_options", "open_receiver"]


def link_options(url: str, link: LinkOptions, *, up: bool = False) -> NatsOptions:
    """Return checked options of a connection; `up` is True for one to an upstream hub."""
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of every TLS connection that the other side ends
    options = NatsOptions(url, link.creds, link.nkey, link.tls_ca, link.tls_cert, link.tls_key, up=up)
    options.check()
    for secret in options.secrets:
        if warning := exposure_warning(secret):
            tell(warning)
    return options


def open_receiver(
    parts: contextlib.ExitStack, options: Hub, largest: int, reloads: Reloads, quotas: Quotas
) -> tuple[NatsReceiver, dict[str, Any]]:
    """Return the receiving end of a hub at its own broker or at --nats, and the counters of the broker.

    `largest` is the number of bytes that a sketch can have.
    """
    cap = parse_size(options.broker_cap or BROKER_CAP)
    owner = own_identity(options.state)
    if options.nats is not None:
        connection = link_options(options.nats, options)
        receiver = NatsReceiver(connection, tell, owner=owner, cap=cap, largest=largest, quotas=quotas)
        receiver.check_no_other_hub()
        return receiver, {}
    owner = owner._replace(host="")  # the queue is in the state folder: the same hub, whatever its container's name
    broker = _start_broker(parts, options, cap)
    receiver = NatsReceiver(
        broker.options, tell, owner=owner, cap=cap, largest=largest, admitted=broker.admitted, quotas=quotas
    )
    if reason := broker.unreachable():
        receiver.counters.down = reason
        tell(
            Notice(
                f"NOT READY: the broker runs, but this hub cannot reach it: {reason}; retrying until it can",
                "not-ready",
                WARNING,
            )
        )

    def reload() -> None:
        broker.reload()
        receiver.note_reach(broker.unreachable())
        if receiver.counters.down:
            raise UsageError(f"a new connection to the broker does not work: {receiver.counters.down}")

    reloads.add("sites and certificates", reload)
    return receiver, {"broker": broker.counters}


def _start_broker(parts: contextlib.ExitStack, options: Hub, cap: int) -> Broker:
    tls = None
    if options.tls_cert is not None and options.tls_key is not None:
        tls = Tls(options.tls_cert, options.tls_key, options.tls_ca)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # as in link_options
    listen = LISTEN if options.listen is None else options.listen
    broker = Broker(options.state / "broker", tell, listen=listen, cap=cap, tls=tls)
    parts.enter_context(broker)
    tell(f"broker ready at {broker.options.url}")
    if not broker.guarded:
        tell("no site is enrolled: any process on this machine can send as any site (superhosts site enroll SITE)")
    return broker
