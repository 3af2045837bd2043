"""The .cube file: a header and named arrays, compressed, checked, written whole or not at all.

    magic · version · length of the header · header (JSON) · blocks of the arrays · BLAKE2b of all that

A reader checks the digest before it believes anything, refuses headers that ask for more memory than it may take, and
executes nothing: arrays are plain little-endian numbers whose type and shape stand in the header. This module
knows a header and arrays; what they mean is for the detectors to say.

Arrays are cut into blocks, each written as suits it (`coding.py`) and compressed by zstandard. At 5 M flows a 128 MiB
cube takes about a tenth of its memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import operator
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.coding import Block, encode, read_block
from superhosts.device import run_parallel
from superhosts.errors import OutputError, SketchFileError, UnreadableError, VersionError
from superhosts.units import format_size

MAGIC = b"\x89CUBE\r\n\x1a"
VERSION = 2  # 1: rows of a cube were not turned
BLOCK = 1 << 20  # bytes of an array that are compressed together
MAX_HEADER = 64 << 20
DIGEST = 32
_START = struct.Struct("<8sII")  # magic, version, bytes of the header
_FRAME = struct.Struct("<BI")  # coding, bytes of the block as compressed
Arrays = dict[str, NDArray[Any]]


class Place(NamedTuple):
    """Where a block lies in the file and in its array."""

    offset: int
    start: int  # first item
    stop: int
    dtype: np.dtype[Any]


Take = Callable[[int, int, Block], None]  # a function that takes a block for the items start..stop of an array


def _pack(items: NDArray[Any], compress: Any) -> bytes:
    block = encode(items)
    data: bytes = compress(block.data.tobytes())
    return _FRAME.pack(block.coding, len(data)) + data


def _blocks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    flat = array.reshape(-1)
    step = BLOCK // array.dtype.itemsize
    for start in range(0, len(flat), step):
        yield flat[start : start + step]


def write(path: str | Path, header: dict[str, Any], arrays: Arrays) -> None:
    """Write a file under a temporary name, sync it, and rename it into place."""
    import zstandard

    compress = zstandard.ZstdCompressor(level=1).compress
    shapes = [{"name": name, "dtype": array.dtype.str, "shape": list(array.shape)} for name, array in arrays.items()]
    text = json.dumps({**header, "arrays": shapes}, separators=(",", ":")).encode()
    if len(text) > MAX_HEADER:
        raise OutputError(f"{path}: cannot be written: its sites and counters take {format_size(len(text))}")
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    digest = hashlib.blake2b(digest_size=DIGEST)
    try:
        with temporary.open("wb") as file:

            def put(data: bytes) -> None:
                digest.update(data)
                file.write(data)

            put(_START.pack(MAGIC, VERSION, len(text)))
            put(text)
            for array in arrays.values():
                for block in _blocks(np.ascontiguousarray(array)):
                    put(_pack(block, compress))
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # where it could not be made, there is nothing to remove
            temporary.unlink()


def peek(path: str | Path) -> dict[str, Any]:
    """Return a header as it stands, unverified, to choose files by; an empty one where there is none to be read."""
    try:
        with Path(path).open("rb") as file:
            magic, _, length = _START.unpack(file.read(_START.size))
            header = json.loads(file.read(length)) if magic == MAGIC and length <= MAX_HEADER else {}
    except (OSError, ValueError, RecursionError, struct.error):
        return {}
    return header if isinstance(header, dict) else {}


def is_whole(path: Path) -> bool:
    """Say whether a file ends with the digest of all that comes before it."""
    left = path.stat().st_size - DIGEST
    digest = hashlib.blake2b(digest_size=DIGEST)
    with path.open("rb") as file:
        while left > 0 and (piece := file.read(min(left, BLOCK))):
            digest.update(piece)
            left -= len(piece)
        return left == 0 and file.read(DIGEST) == digest.digest()


class Reader:
    """An open, verified file: its header and digest, and its arrays, whole or block by block."""

    def __init__(self, path: str | Path, *, trusted: bool = False, max_header: int = MAX_HEADER) -> None:
        """Open a file and check it; of a `trusted` one, checked a moment ago, the checksum is not computed again.

        A header of more than `max_header` bytes is refused before it is read.
        """
        self.name = str(path)
        self._trusted = trusted
        self._max_header = min(max_header, MAX_HEADER)
        try:
            self._file: IO[bytes] = Path(path).open("rb")  # noqa: SIM115  # closed by close() or the with statement
        except OSError as error:
            raise self._unreadable(error) from None
        try:
            self.header = self._verify()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _bad(self, message: str, offset: int | None = None) -> SketchFileError:
        return SketchFileError(message, file=self.name, offset=offset)

    def _unreadable(self, error: OSError, offset: int | None = None) -> SketchFileError:
        """Tell a file that is not there from one that cannot be read now."""
        gone = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError)
        kind = SketchFileError if gone else UnreadableError
        return kind(f"cannot be read: {error.strerror or error}", file=self.name, offset=offset)

    def _verify(self) -> dict[str, Any]:
        file = self._file
        try:
            size = os.fstat(file.fileno()).st_size
            start = file.read(_START.size)
        except OSError as error:
            raise self._unreadable(error) from None
        if start[: len(MAGIC)] != MAGIC[: len(start)] or not start:
            raise self._bad("not a .cube file")
        if len(start) < _START.size:
            raise self._bad(f"cut off after {len(start)} bytes", len(start))
        _, version, length = _START.unpack(start)
        self._end = size - DIGEST
        if version != VERSION:
            self._first = 0
            self._verify_digest()  # a damaged file may show any version
            message = f"format version {version}; this program reads version {VERSION}"
            raise VersionError(message, file=self.name, offset=len(MAGIC))
        if length > self._max_header:
            limit = f"the header takes {format_size(length)}, the limit is {format_size(self._max_header)}"
            raise self._bad(f"too large or damaged: {limit}", _START.size)
        if _START.size + length > self._end:
            raise self._bad("cut off or damaged: the header runs past the end of the file", _START.size)
        self._first = _START.size + length
        text = self._verify_digest()
        try:
            header = json.loads(text)
        except (ValueError, RecursionError):
            raise self._bad("damaged: the header is not JSON", _START.size) from None
        if not isinstance(header, dict) or not isinstance(header.get("arrays"), list):
            raise self._bad("damaged: the header lists no arrays", _START.size)
        return header

    def _verify_digest(self) -> bytes:
        """Check the digest of the whole file, in one reading; return the header's text."""
        digest = hashlib.blake2b(digest_size=DIGEST)
        text = bytearray()
        offset = 0
        end = min(self._first, self._end) if self._trusted else self._end
        while offset < end:
            piece = self._read_at(offset, min(end - offset, BLOCK))
            if not piece:
                break
            digest.update(piece)
            if len(text) < self._first:
                text += piece[: self._first - len(text)]
            offset += len(piece)
        self.digest = self._read_at(self._end, DIGEST)
        if not self._trusted and digest.digest() != self.digest:
            raise self._bad("cut off or damaged: the checksum does not match")
        return bytes(text[_START.size :])

    def check_memory(self, limit: int) -> None:
        """Refuse a file whose arrays would take more than `limit` bytes, before anything is allocated."""
        total = sum(dtype.itemsize * count for dtype, count in self._shapes().values())
        if total > limit:
            raise self._bad(f"asks for {format_size(total)} of memory, the limit is {format_size(limit)}")

    def _shapes(self) -> dict[str, tuple[np.dtype[Any], int]]:
        shapes = {}
        for entry in self.header["arrays"]:
            try:
                dtype = np.dtype(entry["dtype"])
                name, shape = str(entry["name"]), list(map(operator.index, entry["shape"]))
            except (ArithmeticError, TypeError, KeyError, ValueError, SyntaxError):
                raise self._bad(f"damaged: array {entry!r} has no readable type and shape") from None
            if dtype.kind not in "ui" or not shape or min(shape) < 0:
                raise self._bad(f"damaged: array {entry!r} is not an array of whole numbers")
            count = 1
            for side in shape:
                count *= side  # Python's numbers do not overflow
            if name in shapes:
                raise self._bad(f"damaged: two arrays are called {name}")
            shapes[name] = (dtype, count)
        return shapes

    def check_arrays(self, expected: Mapping[str, NDArray[Any]]) -> None:
        """Refuse a file that has not these arrays, of these types and shapes."""
        stored = {str(entry["name"]): tuple(entry["shape"]) for entry in self.header["arrays"]}
        types = self._shapes()
        missing = expected.keys() - stored.keys()
        if missing:
            raise self._bad(f"damaged: no array {', '.join(sorted(missing))}")
        for name, array in expected.items():
            if array.shape != stored[name] or array.dtype != types[name][0]:
                here = f"{types[name][0]} {stored[name]}"
                raise self._bad(f"damaged: array {name} is {here}, expected {array.dtype} {array.shape}")

    def places(self) -> dict[str, list[Place]]:
        """Return where the blocks of every array lie. A file whose blocks do not fill it is refused."""
        offset = self._first
        places: dict[str, list[Place]] = {}
        for name, (dtype, count) in self._shapes().items():
            own = places.setdefault(name, [])
            step = BLOCK // dtype.itemsize
            for start in range(0, count, step):
                frame = self._read_at(offset, _FRAME.size)
                if len(frame) < _FRAME.size or offset + _FRAME.size > self._end:
                    raise self._bad("damaged: a block is missing", offset)
                length = _FRAME.unpack(frame)[1]
                if length > self._end - offset - _FRAME.size:
                    raise self._bad("damaged: a block runs past the end", offset)
                own.append(Place(offset, start, min(start + step, count), dtype))
                offset += _FRAME.size + length
        if offset != self._end:
            raise self._bad("damaged: more follows the last array", offset)
        return places

    def arrays(self, prepared: Arrays | None = None, threads: int = 1) -> Arrays:
        """Read the arrays; into `prepared` ones where those are given, which must have the stored shapes."""
        self.check_arrays(prepared or {})
        places = self.places()  # nothing is allocated for blocks that are not there
        arrays: Arrays = {}
        for entry, (dtype, _) in zip(self.header["arrays"], self._shapes().values(), strict=True):
            name, shape = str(entry["name"]), tuple(entry["shape"])
            ready = (prepared or {}).get(name)
            arrays[name] = np.zeros(shape, dtype) if ready is None else ready
        flat = {name: array.reshape(-1) for name, array in arrays.items()}

        def putter(words: NDArray[Any]) -> Take:
            return lambda start, stop, block: block.put(words[start:stop])

        self.each_block({name: putter(words) for name, words in flat.items()}, threads, places)
        return arrays

    def each_block(
        self, takers: Mapping[str, Take], threads: int, places: Mapping[str, list[Place]] | None = None
    ) -> None:
        """Hand every block of the arrays that somebody takes to its taker, on up to `threads` threads, in any order."""
        import zstandard

        places = self.places() if places is None else places
        blocks = [(take, place) for name, take in takers.items() for place in places[name]]
        work = iter(blocks)

        def run() -> None:
            decompress = zstandard.ZstdDecompressor().decompress  # one to a thread
            for take, place in work:  # a list's iterator gives each item once, whoever asks
                take(place.start, place.stop, self._read_block(place, decompress))

        run_parallel(run, [()] * min(threads, len(blocks)), threads)

    def _read_at(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self._file.fileno(), length, offset)
        except OSError as error:
            raise self._unreadable(error, offset) from None

    def _read_block(self, place: Place, decompress: Any) -> Block:
        import zstandard

        coding, length = _FRAME.unpack(self._read_at(place.offset, _FRAME.size))
        packed = self._read_at(place.offset + _FRAME.size, length)
        try:
            if zstandard.frame_content_size(packed) > 2 * BLOCK:  # zstandard believes this size, whatever the limit
                raise self._bad("damaged: a block is larger than blocks are", place.offset)
            data = np.frombuffer(decompress(packed, max_output_size=2 * BLOCK), np.uint8)
        except zstandard.ZstdError as error:
            raise self._bad(f"damaged: {error}", place.offset) from None
        block = read_block(coding, data, place.dtype, place.stop - place.start)
        if block is None:
            raise self._bad("damaged: a block does not decode to its array", place.offset)
        return block
