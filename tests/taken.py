"""How much memory a piece of code takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def little_memory(most: int = 4 << 20) -> Iterator[None]:
    """Assert that Python and NumPy never hold more than `most` bytes in addition, even where nobody touches them."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] <= most, "memory was taken"
    finally:
        tracemalloc.stop()
