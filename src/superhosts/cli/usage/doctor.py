"""Options of `superhosts doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from superhosts.cli._options import Json


@dataclass(frozen=True)
class Doctor:
    """Say what works here and what to do about the rest: versions, memory, compiled code, GPUs, optional packages.

    A small cube is filled on the CPU and on every GPU; they must agree bit by bit.
    What is missing is optional. The exit status is 2 if something is there and does not work.

    Example: superhosts doctor
    """

    json: Json = False
