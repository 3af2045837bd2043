"""Text as hosts and peers: keyed hashes of 128 bits, and what is shown of a text that is not known any more.

The hash is SipHash-2-4 with 128 bits of output, over the bytes of the text in UTF-8 (a lone surrogate is its number in
the same form, so that different texts have different bytes). Its key is derived from the detector's key: sites with the
same key get the same hashes, and nobody can choose names that collide without it. Among a billion names, two are alike
by accident with a probability of 2^-69. Twenty bytes take 50 ns, and a microsecond in Python's library.

The names themselves are in a bounded dictionary (`detectors/hostnames.py`). A host whose name is not in it is shown as
`#` and the 32 hexadecimal digits of its hash. A name that is too long for it, or is not UTF-8, or itself looks like
that, is shown as its beginning, `…`, and the same. All of these forms are accepted wherever a host is named; `bytes`
are always taken as a name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superhosts.core.columns.column import Text, text_of
from superhosts.core.device import run_parallel, split_evenly
from superhosts.core.pairs import TEXT, Addresses, HostFormat, array_to_numbers, shown_hash
from superhosts.core.text import SURROGATES
from superhosts.errors import UsageError
from superhosts.jit.cache import compiled

MASK64 = 0xFFFFFFFFFFFFFFFF
TextKey = tuple[Any, Any]  # two words, as np.uint64
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]


MOST_BYTES = 255  # of a name that is kept whole
SHORTENED = 200  # bytes of the beginning of a longer name
PER_THREAD = 1 << 15  # texts from which on another thread pays
_STAND_IN = re.compile("(?:.*…)?#([0-9a-f]{32})", re.DOTALL)
_SUFFIX = 33  # bytes of # and the digits


def text_key(secret: bytes) -> TextKey:
    digest = hashlib.blake2b(secret, person=b"superhosts text", digest_size=16).digest()
    return np.uint64(int.from_bytes(digest[:8], "little")), np.uint64(int.from_bytes(digest[8:], "little"))


@compiled
def _round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    """Return the state of SipHash after one round."""
    v0 = (v0 + v1) & MASK64
    v1 = ((v1 << 13) & MASK64 | v1 >> 51) ^ v0
    v0 = (v0 << 32) & MASK64 | v0 >> 32
    v2 = (v2 + v3) & MASK64
    v3 = ((v3 << 16) & MASK64 | v3 >> 48) ^ v2
    v0 = (v0 + v3) & MASK64
    v3 = ((v3 << 21) & MASK64 | v3 >> 43) ^ v0
    v2 = (v2 + v1) & MASK64
    v1 = ((v1 << 17) & MASK64 | v1 >> 47) ^ v2
    v2 = (v2 << 32) & MASK64 | v2 >> 32
    return v0, v1, v2, v3


@compiled
def _eight_bytes(data: Bytes, at: int) -> int:
    """Return eight bytes as a little-endian word. The compiler makes one load of it."""
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(data[at + np.uint64(i)]) << np.uint64(8 * i)
    return word


@compiled
def _hash_rows(text: Text, key: TextKey, out: Words, first: int, end: int) -> None:
    """Write the hashes of the texts from `first` to `end` − 1 as rows (high word, low word)."""
    data, starts, ends = text.data, text.starts, text.ends
    eight, seven = np.uint64(8), np.uint64(7)
    for i in range(first, end):
        start, stop = np.uint64(starts[i]), np.uint64(ends[i])
        size = stop - start
        v0, v1 = np.uint64(0x736F6D6570736575) ^ key[0], np.uint64(0x646F72616E646F6D) ^ key[1] ^ np.uint64(0xEE)
        v2, v3 = np.uint64(0x6C7967656E657261) ^ key[0], np.uint64(0x7465646279746573) ^ key[1]
        at, whole = start, stop - (size & seven)
        while at < whole:
            word = _eight_bytes(data, at)
            v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
            v0 ^= word
            at += eight
        word = size << np.uint64(56)
        if size >= eight and at < stop:  # The last bytes, with one load.
            word |= _eight_bytes(data, stop - eight) >> (np.uint64(64) - ((size & seven) << np.uint64(3)))
        else:
            shift = np.uint64(0)
            while at < stop:
                word |= np.uint64(data[at]) << shift
                shift += eight
                at += np.uint64(1)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        v0, v2 = v0 ^ word, v2 ^ np.uint64(0xEE)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        out[i, 1] = v0 ^ v1 ^ v2 ^ v3
        v1 ^= np.uint64(0xDD)
        for _ in range(4):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        out[i, 0] = v0 ^ v1 ^ v2 ^ v3


def hash_texts(text: Text, key: TextKey, threads: int = 1) -> Words:
    """Return the hashes of a column of texts as rows (high word, low word)."""
    count = len(text.starts)
    out = np.empty((count, 2), np.uint64)
    tasks = max(1, min(threads, count // PER_THREAD))
    run_parallel(_hash_rows, [(text, key, out, *share) for share in split_evenly(count, tasks)], tasks)
    return out


def hash_text(text: str | bytes, key: TextKey) -> int:
    high, low = hash_texts(text_of([text]), key)[0]
    return int(high) << 64 | int(low)


def number_in(text: str) -> int | None:
    match = _STAND_IN.fullmatch(text)
    return int(match[1], 16) if match else None


def shown_name(raw: bytes, is_shortened: bool, number: int) -> str:
    """Return what is shown of a host: its name if that is text and whole, otherwise its beginning and its hash."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text, is_shortened = _escaped(raw), True
    if not is_shortened and number_in(text) is None:
        return text
    return f"{text.encode()[:SHORTENED].decode(errors='ignore')}…{shown_hash(number)}"


def _escaped(raw: bytes) -> str:
    try:
        return raw.decode(errors=SURROGATES).encode(errors="backslashreplace").decode()
    except UnicodeDecodeError:
        return raw.decode(errors="backslashreplace")


def beginning_of(shown: str) -> str:
    return shown[: -_SUFFIX - 1]


def may_show_hash(text: Text) -> NDArray[np.bool_]:
    long_enough = text.ends - text.starts >= _SUFFIX
    if not long_enough.any():
        return long_enough
    return np.asarray(long_enough & (text.data[np.where(long_enough, text.ends - _SUFFIX, 0)] == ord("#")))


def bound(format: HostFormat, key: TextKey) -> HostFormat:
    return TextFormat(key) if format == TEXT else format


class TextFormat(HostFormat):
    """The format of text keys with what it takes to convert them: the key of the hash, and names of some hosts.

    It equals any other format of text keys. The format of a result has names, but no key.
    """

    key: TextKey | None
    hosts: Addresses
    texts: Sequence[str | None]

    def __new__(
        cls, key: TextKey | None = None, hosts: Addresses | None = None, texts: Sequence[str | None] = ()
    ) -> TextFormat:
        """Return a format. `texts` are the names of `hosts`, None where a name is not known."""
        made = super().__new__(cls, *TEXT)
        made.key, made.texts = key, texts
        made.hosts = np.empty((0, 2), np.uint64) if hosts is None else hosts
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a pickle holds: the names, and never the key."""
        return TextFormat, (None, self.hosts, self.texts)

    def __copy__(self) -> TextFormat:
        return self

    def __deepcopy__(self, _memo: Any) -> TextFormat:
        return self

    @cached_property
    def names(self) -> dict[int, str]:
        pairs = zip(array_to_numbers(self.hosts), self.texts, strict=True)
        return {number: text for number, text in pairs if text is not None}

    def knows(self, number: int) -> bool:
        return number in self.names

    def united(self, others: Sequence[HostFormat]) -> HostFormat:
        known = [each for each in others if isinstance(each, TextFormat)]
        if len(known) < 2:
            return self
        return TextFormat(
            self.key, np.concatenate([each.hosts for each in known]), [text for each in known for text in each.texts]
        )

    def to_host(self, number: int) -> str:
        found = self.names.get(number)
        return shown_hash(number) if found is None else found

    def to_number(self, host: Any) -> int:
        """Return the hash of a name. What stands for a name that is not known is accepted, too."""
        if not isinstance(host, str | bytes):
            raise UsageError(f'{host!r} is not text: keys="text" takes str or bytes')
        number = number_in(host) if isinstance(host, str) else None
        if number is not None:
            return number
        if self.key is not None:
            return hash_text(host, self.key)
        for number, name in self.names.items():
            if name == host or (isinstance(host, bytes) and name.encode() == host):
                return number
        raise UsageError(f"{host!r} is not one of these hosts")
