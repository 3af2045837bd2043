"""From options to `Settings`: the one place where a command's options become what the pipeline takes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from superhosts.cli._options import EvidenceOptions
from superhosts.lab.scan import detector_of
from superhosts.pipeline.settings import Settings

_NAMES = {each.name for each in fields(Settings)}


def make_settings(*groups: Any, **others: Any) -> Settings:
    """Return the settings that groups of options and single values name; settings and options have the same names.

    An option that is None was not given: the default of the settings counts.
    The key is a single value: which one counts without `--key-file` differs between commands (`_keys.py`).
    """
    given: dict[str, Any] = {}
    for group in groups:
        for option in fields(group):
            value = getattr(group, option.name)
            if isinstance(value, EvidenceOptions):
                given |= vars(value)
            elif option.name in _NAMES and value is not None:
                given[option.name] = value
    if "detector" in given:
        given["detector"] = detector_of(given["detector"])
    return Settings(**given, **others)
