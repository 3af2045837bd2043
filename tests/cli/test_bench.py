"""The measurements of `bench`: what is timed is a warm and empty cube."""

from __future__ import annotations

from typing import Any

import numpy as np

from superhosts import Cube
from superhosts.cli.bench import update_rate


class Watched:
    """A cube that writes down what is asked of it, and how many pairs it has written when it is cleared."""

    def __init__(self, cube: Cube) -> None:
        self.cube = cube
        self.calls: list[str] = []
        self.written: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if name == "clear":
            self.written.append(int(self.cube.engine.bits.any()))
        self.calls.append(name)
        return getattr(self.cube, name)


def test_pairs_are_written_once_before_they_are_timed() -> None:
    """A cube that is cleared while its pairs wait has touched no page and loaded no loop: a cold start."""
    cube: Any = Watched(Cube("1MiB", device="cpu", threads=1, exact=False))
    column = np.arange(1000, dtype=np.uint32)
    assert update_rate(cube, column, column) > 0
    assert cube.written == [1]
    assert cube.calls == ["update", "flush", "clear", "flush", "update", "flush"]
