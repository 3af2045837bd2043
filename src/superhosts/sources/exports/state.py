"""Templates and sampling rates on disk, so that a restart loses no flow whose template was ever seen.

An exporter may send its templates every few minutes only. The file has what the registry knows, as the exporters sent
it, and is replaced when that has changed, at most once in a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from superhosts.core.files import make_folder, read_state, write_json
from superhosts.core.notices import WARNING, Notice
from superhosts.errors import OutputError
from superhosts.sources.exports.layout import PLAN_USED, USED
from superhosts.sources.exports.registry import Registry, StreamKey
from superhosts.sources.exports.templates import BadTemplateError, Template, read_templates

FORMAT = "superhosts templates 1"
MOST_BYTES = 4 << 20  # of templates; those that were used last are kept
PAUSE = 1.0  # seconds between two writings, at least
BUSY = 20  # times as long as a writing takes; only exporters that send ever new templates make it long


def state_folder() -> Path:
    """Return the folder of state: that of the service ($STATE_DIRECTORY), or the user's."""
    service = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if service:
        return Path(service)
    user = os.environ.get("XDG_STATE_HOME", "")
    return (Path(user) if user.startswith("/") else Path("~/.local/state").expanduser()) / "superhosts"


class TemplateFile:
    """The file of one input."""

    def __init__(self, path: Path, warn: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._warn, self._clock = path, warn, clock
        self._written = -PAUSE
        self._pause = PAUSE
        self._has_failed = False

    def load(self, registry: Registry) -> None:
        """Let a registry learn what the file has."""
        try:
            content = read_state(self._path, _fits, self._warn)
        except (OutputError, OSError) as error:
            self._warn(str(error))
            return
        for each in content["exporters"] if content else []:
            stream = registry.stream_of(StreamKey(int(each["address"], 16), each["version"], each["domain"]))
            if stream is None:
                break
            for kind, record in each["templates"]:
                for template in _templates(bytes.fromhex(record), kind):
                    registry.learn(stream, template)
            for sampler, rate in each["sampling"]:
                registry.note_rate(stream, sampler, rate)
        registry.changed = False

    def save(self, registry: Registry, *, now: bool = False) -> None:
        """Write what a registry knows if it has changed; without `now` at most once in a while."""
        started = self._clock()
        if not registry.changed or (not now and started - self._written < self._pause):
            return
        registry.changed = False
        self._written = started
        try:
            make_folder(self._path.parent)
            write_json(self._path, {"format": FORMAT, "exporters": _content(registry)})
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                reason = error.strerror or error
                self._warn(
                    Notice(f"{self._path}: templates cannot be kept for the next start: {reason}", "trouble", WARNING)
                )
            self._has_failed = True
        self._pause = max(PAUSE, BUSY * (self._clock() - started))


def _content(registry: Registry) -> list[dict[str, Any]]:
    plans, streams = registry.tables.plans, registry.tables.streams
    by_use = sorted(registry.templates, key=lambda key: -plans[registry.row_of(key), PLAN_USED])
    kept: dict[int, list[Template]] = {}
    size = 0
    for key in by_use:
        size += len(registry.templates[key].content)
        if size > MOST_BYTES:
            break
        kept.setdefault(key[0], []).append(registry.templates[key])
    content = []
    for stream in sorted(kept.keys() | set(registry.with_rates()), key=lambda stream: -streams[stream, USED]):
        exporter = registry.key_of(stream)
        content.append(
            {
                "address": f"{exporter.address:x}",
                "version": exporter.version,
                "domain": exporter.domain,
                "exporter": exporter.shown,
                "templates": [(each.kind, each.content.hex()) for each in kept.get(stream, ())],
                "sampling": list(registry.samplers.get(exporter.address, {}).items()),
            }
        )
    return content


def _templates(record: bytes, kind: int) -> list[Template]:
    try:
        return [template for template in read_templates(record, kind) if template.fields]
    except BadTemplateError:  # of another release
        return []


def _fits(content: Any) -> bool:
    """Return True if a file has what this program writes."""
    try:
        return content["format"] == FORMAT and all(_is_exporter(each) for each in content["exporters"])
    except (TypeError, KeyError, ValueError):
        return False


def _is_exporter(each: Any) -> bool:
    whole = all(type(each[name]) is int and 0 <= each[name] < 1 << 32 for name in ("version", "domain"))
    numbers = all(0 <= kind <= 3 and bytes.fromhex(record) is not None for kind, record in each["templates"])
    rates = all(type(number) is int and 0 <= number < 1 << 64 for pair in each["sampling"] for number in pair)
    return whole and numbers and rates and 0 <= int(each["address"], 16) < 1 << 128
