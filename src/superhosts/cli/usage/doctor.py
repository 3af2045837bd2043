"""Options of `superhosts doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from superhosts.cli._options import JsonObject


@dataclass(frozen=True)
class Doctor:
    """Check this installation: versions, memory, compiled code, GPUs and optional packages.

    Each line says what works, or what to do about it. A small cube is filled on the CPU and on every GPU; they must
    agree bit by bit. What is reported as missing is optional. The exit status is 2 if something is installed and does
    not work.

    Example: superhosts doctor
    """

    json: JsonObject = False
