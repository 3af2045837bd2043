"""Autonomous systems and countries of addresses, from files in MaxMind's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from superhosts.core.pairs import Network
from superhosts.errors import UsageError


class MaxMind:
    """One file."""

    def __init__(self, path: Path) -> None:
        """Open a file. Raise UsageError if it cannot be read."""
        try:
            import maxminddb
        except ImportError:
            raise UsageError(f"--geo {path}: needs a package: pip install 'superhosts[geo]'") from None
        try:
            self._file = maxminddb.open_database(path)
        except (OSError, maxminddb.InvalidDatabaseError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--geo {path}: cannot be read: {reason}") from None

    def fields(self, host: Network) -> dict[str, Any]:
        """Return what the file knows of a host: asn, as_name, country. A prefix is known by its first address."""
        try:
            found = self._file.get(host.network_address)
        except (ValueError, RuntimeError):  # an IPv6 address, and the file has IPv4 only; or it is damaged there
            return {}
        return _fields(found) if isinstance(found, dict) else {}


def _fields(found: dict[str, Any]) -> dict[str, Any]:
    """Return what a record says. Publishers name the same things differently."""
    fields: dict[str, Any] = {}
    number = found.get("autonomous_system_number", found.get("asn"))
    if isinstance(number, str):
        number = number.upper().removeprefix("AS")
    if isinstance(number, int) or (isinstance(number, str) and number.isascii() and number.isdigit()):
        fields["asn"] = int(number)
    name = found.get("autonomous_system_organization", found.get("as_name", found.get("name")))
    if isinstance(name, str) and name:
        fields["as_name"] = name
    country = found.get("country", found.get("country_code"))
    if isinstance(country, dict):
        country = country.get("iso_code")
    if isinstance(country, str) and len(country) == 2:
        fields["country"] = country
    return fields
