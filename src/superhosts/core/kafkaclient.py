"""What everything that speaks with Kafka needs: the client library, files with its properties, readable errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from superhosts.errors import InputError, import_extra


def import_client(name: str) -> Any:
    """Return the module `confluent_kafka`, which the extra `kafka` installs. `name` says what needs it."""
    return import_extra(name, "kafka", "confluent_kafka")


def read_properties(path: str) -> dict[str, str]:
    """Return the properties of a file: a name, an equals sign and a value in each line; # begins a remark."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", file=path) from None
    found = {}
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, equals, value = line.partition("=")
            if not equals:
                raise InputError(f"line {number} is not name=value", file=path)
            found[name.strip()] = value.strip()
    return found


def with_ports(brokers: str) -> str:
    return ",".join(broker if ":" in broker else f"{broker}:9092" for broker in brokers.split(","))


def reason_of(error: Any) -> str:
    return str(error.args[0].str() if error.args and hasattr(error.args[0], "str") else error)
