"""What a kind of input says of itself, so that `opening.py` can open it.

A kind is recognised by the scheme of a name (synth:flows=100k, netflow://:2055) or by the first bytes of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from superhosts.sources.base import Source
from superhosts.sources.inputs import Input


@dataclass(frozen=True)
class Scheme:
    """Inputs whose names begin with a word and a colon; they are no files."""

    word: str
    open: Callable[[str], Source | Sequence[Source]]  # takes the whole name, with the word; it may stand for several


@dataclass(frozen=True)
class FileFormat:
    """Files and pipes that begin with certain bytes, after decompression."""

    recognises: Callable[[bytes], bool]  # of the first bytes: at least 8, unless the input is shorter
    open: Callable[[Input], Source]
