"""The .cube file: a header and named arrays, compressed, checksummed, and written atomically.

A reader verifies the digest before it uses anything else, rejects headers that require more memory than allowed, and
executes nothing from the file: arrays are plain little-endian numbers whose types and shapes are in the header.

docs/reference/format.md describes every byte. A coded block can be merged into an array without decoding it first.

A path is written under a temporary name that replaces it in the end, and read in place by several threads. File objects
need only `write` or `read`; their rest is read into memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superhosts.core.device import run_parallel
from superhosts.core.fields import MOST_QUOTED, FieldError, record, sequence, text, whole
from superhosts.core.files import HEAD_BYTES, SKETCH, output_errors, replaceable, replacing
from superhosts.core.text import counted, printable
from superhosts.core.units import format_size
from superhosts.errors import OutputError, SketchFileError, UnreadableError, UsageError, VersionError
from superhosts.jit.cache import compiled

MAGIC = SKETCH
VERSION = 3  # Version 2 had no giant columns, no sampling and no turned lines; the geometry of its cubes says so.
READ_VERSIONS = (2, 3)  # In version 1 the rows of a cube were not rotated.
BLOCK = 1 << 20  # bytes of an array that are compressed together
MAX_PACKED = 2 * BLOCK  # bytes of a compressed block; incompressible data grows by less than 1/64
SITE_HEADER = 1 << 20  # bytes of a header that this program writes, and that a hub accepts from a site
MAX_HEADER = 16 << 20  # bytes of a header that are read: version 0.1.0 wrote the counters of years of windows
MAX_VALUES = 1 << 20  # JSON values of a header; as Python objects they take up to 250 bytes each
DIGEST = 32  # bytes of the digest
_START = struct.Struct("<8sII")  # magic, version, bytes of the header
_FRAME = struct.Struct("<BI")  # coding, bytes of the compressed block
Arrays = dict[str, NDArray[Any]]
File = str | os.PathLike[str] | IO[bytes]  # a path, or an open file
GAPS, PLANES = 0, 1  # codings of a block


@compiled
def _encode_gaps(words: NDArray[np.uint64], out: NDArray[np.uint8]) -> int:
    """Write the gaps between set bits to `out`. Return the bytes used, or −1 if `out` is too small."""
    used = 0
    gap = 0
    for word in words:
        if word == 0:
            gap += 64
            continue
        rest = word
        last = 0
        while rest != 0:
            bit = 0
            lowest = rest & (~rest + np.uint64(1))
            for step in (32, 16, 8, 4, 2, 1):  # Find the position of the lowest set bit by bisection.
                if lowest >> np.uint64(bit + step - 1) > 1:
                    bit += step
            gap += bit - last
            if used + gap // 255 + 1 > len(out):
                return -1
            while gap >= 255:
                out[used] = 255
                used += 1
                gap -= 255
            out[used] = gap
            used += 1
            gap = 0
            last = bit + 1
            rest &= rest - np.uint64(1)
        gap = 64 - last
    return used


@compiled
def _check_gaps(data: NDArray[np.uint8], bits: int) -> int:
    """Return the number of bytes up to the last set bit, or −1 if a bit is past the end."""
    total, last = np.int64(0), len(data)
    while last > 0 and data[last - 1] == 255:  # No set bit follows trailing bytes of 255.
        last -= 1
    for i in range(last):
        total += np.int64(data[i]) + np.int64(data[i] != 255)
    return last if total <= bits else -1


@compiled
def _or_gaps(data: NDArray[np.uint8], words: NDArray[np.uint64]) -> None:
    """Set the bits that the gaps encode. `_check_gaps` must have accepted them.

    The loop has no branches, because gaps are unpredictable.
    """
    position = np.int64(0)
    for byte in data:
        position += np.int64(byte)
        mark = np.uint64(byte != 255)
        words[position >> 6] |= mark << np.uint64(position & 63)
        position += np.int64(mark)


@compiled
def _or_planes(data: NDArray[np.uint8], words: NDArray[np.uint64]) -> None:
    """OR words stored as byte planes into `words`."""
    count = len(words)
    for plane in range(8):
        shift = np.uint64(8 * plane)
        for i in range(count):
            words[i] |= np.uint64(data[plane * count + i]) << shift


class CodedBlock(NamedTuple):
    """A valid coded block: it decodes to exactly the items of its part of the array."""

    coding: int
    data: NDArray[np.uint8]

    @property
    def is_empty(self) -> bool:
        """Return True if no bit is set. Always False for byte planes, which are not inspected."""
        return self.coding == GAPS and not len(self.data)

    def put(self, into: NDArray[Any]) -> None:
        if self.coding == PLANES:
            for place, plane in enumerate(self.data.reshape(into.dtype.itemsize, -1)):
                into.view(np.uint8)[place :: into.dtype.itemsize] = plane
        else:
            into.fill(0)
            _or_gaps(self.data, into)

    def merge_or(self, into: NDArray[np.uint64]) -> None:
        (_or_planes if self.coding == PLANES else _or_gaps)(self.data, into)

    def merge_max(self, into: NDArray[np.uint64]) -> None:
        words = np.zeros(len(into), np.uint64)
        self.merge_or(words)
        np.maximum(into, words, out=into)


def encode(items: NDArray[Any]) -> CodedBlock:
    if items.dtype == np.uint64:
        out = np.empty(items.nbytes // 2, np.uint8)
        used = _encode_gaps(items, out)
        if used >= 0:
            return CodedBlock(GAPS, out[:used])
    size = items.dtype.itemsize
    return CodedBlock(PLANES, np.concatenate([items.view(np.uint8)[place::size] for place in range(size)]))


def read_block(coding: int, data: NDArray[np.uint8], dtype: np.dtype[Any], count: int) -> CodedBlock | None:
    """Return the data as a coded block of `count` items, or None if it is invalid."""
    if coding == GAPS and dtype == np.uint64:
        used = _check_gaps(data, 64 * count)
    else:
        used = len(data) if coding == PLANES and len(data) == count * dtype.itemsize else -1
    return None if used < 0 else CodedBlock(coding, data[:used])


def name_of(file: File) -> str:
    name = file if isinstance(file, str | os.PathLike) else getattr(file, "name", None)
    return os.fspath(name) if isinstance(name, str | os.PathLike) else "<bytes>"


@contextmanager
def opened(file: File) -> Iterator[IO[bytes]]:
    if not isinstance(file, str | os.PathLike):
        try:
            yield file
        except TypeError as error:
            raise UsageError(f"{name_of(file)}: does not take bytes; open the file with mode 'wb'") from error
        return
    with replacing(replaceable(Path(file)), private=True) as temporary, temporary.open("wb") as stream:
        yield stream


_ARRAYS = sequence(
    record(
        {
            "name": text("[0-9a-z/]{1,40}", "1 to 40 digits, lowercase letters and /"),
            "dtype": text("<[ui][248]|[|][ui]1", "an integer type like <u8"),
            "shape": sequence(whole(0, 1 << 48), 1, 4),
        }
    )
)


class Place(NamedTuple):
    offset: int  # in the file
    start: int  # first item
    stop: int  # one past the last item
    dtype: np.dtype[Any]


Take = Callable[[int, int, CodedBlock], None]  # a function that receives the block of items start..stop of an array


def write(path: File, header: dict[str, Any], arrays: Arrays) -> None:
    """Write a file: to an open file, or to a path atomically, under a temporary name, synced, then renamed.

    Only its owner can read the file of a path, regardless of the umask: with the key it shows hosts.
    """
    import zstandard

    name, compress = name_of(path), zstandard.ZstdCompressor(level=1).compress
    shapes = [{"name": name, "dtype": array.dtype.str, "shape": list(array.shape)} for name, array in arrays.items()]
    text = json.dumps({**header, "arrays": shapes}, separators=(",", ":"), ensure_ascii=False).encode()
    if len(text) > MAX_HEADER:
        limit = format_size(MAX_HEADER)
        raise OutputError(f"{name}: cannot be written: the header takes {format_size(len(text))}, the limit is {limit}")
    digest = hashlib.blake2b(digest_size=DIGEST)
    with output_errors(name), opened(path) as file:

        def put(data: bytes) -> None:
            digest.update(data)
            file.write(data)

        put(_START.pack(MAGIC, VERSION, len(text)))
        put(text)
        for array in arrays.values():
            items, step = np.ascontiguousarray(array).reshape(-1), BLOCK // array.dtype.itemsize
            for start in range(0, len(items), step):
                block = encode(items[start : start + step])
                data = compress(block.data.tobytes())
                put(_FRAME.pack(block.coding, len(data)) + data)
        file.write(digest.digest())


def parse_header(text: bytes) -> dict[str, Any]:
    """Parse the JSON of a header in bounded memory. Raise ValueError, with the reason, if it is invalid.

    A comma or an opening bracket precedes every value: counting them bounds the values before any is created. Duplicate
    fields are rejected, because JSON readers disagree on which one counts.
    """
    values = sum(map(text.count, (b",", b"[", b"{")))
    if values > MAX_VALUES:
        raise ValueError(f"has {values:,} or more values, the limit is {MAX_VALUES:,}")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_as_object, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise error if isinstance(error, FieldError) else ValueError("is not JSON") from None
    if not isinstance(header, dict) or not isinstance(header.get("arrays"), list):
        raise ValueError("has no list of arrays")
    return header


def _as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise FieldError(printable(name, MOST_QUOTED), "appears twice in one object")
        fields[name] = value
    return fields


def _refuse_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def peek(path: str | Path) -> dict[str, Any] | None:
    """Return the unverified header of a file, for selecting files. Return None if it cannot be read."""
    try:
        if _is_special(path):
            return None
        with Path(path).open("rb") as file:
            magic, version, length = _START.unpack(file.read(_START.size))
            supported = magic == MAGIC and version in READ_VERSIONS and length <= MAX_HEADER
            return parse_header(file.read(length)) if supported else None
    except (OSError, ValueError, struct.error):
        return None


def _is_special(path: str | Path) -> bool:
    """Return True for pipes, sockets and devices, on which opening or reading could block."""
    mode = Path(path).stat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def stored_digest(path: Path) -> str:
    """Return the digest at the end of a file, unchecked, as hexadecimal digits."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - DIGEST))
        return file.read(DIGEST).hex()


def is_whole(path: Path) -> bool:
    left = path.stat().st_size - DIGEST
    digest = hashlib.blake2b(digest_size=DIGEST)
    with path.open("rb") as file:
        while left > 0 and (piece := file.read(min(left, BLOCK))):
            digest.update(piece)
            left -= len(piece)
        return left == 0 and file.read(DIGEST) == digest.digest()


def block_writer(array: NDArray[Any]) -> Take:
    items = array.reshape(-1)
    return lambda start, stop, block: block.put(items[start:stop])


class CubeReader:
    """An open, verified .cube file. Provides its header and digest, and its arrays, whole or block by block."""

    def __init__(self, path: File, *, trusted: bool = False, max_header: int = MAX_HEADER) -> None:
        """Open and verify a file, or verify the rest of a file that is open, which is read into memory.

        `trusted`: the caller has just verified the digest, and it is not computed again. Raise SketchFileError, without
        reading the header, if it is longer than `max_header` bytes.
        """
        self.name = name_of(path)
        self._trusted = trusted
        self._max_header = min(max_header, MAX_HEADER)
        self._file: IO[bytes] | None = None  # on disk, where several threads read it at once
        self._content = memoryview(b"")  # or else in memory
        try:
            self._open(path)
        except OSError as error:
            raise self._read_error(error) from None
        try:
            self.header = self._verify()
        except BaseException:
            self.close()
            raise

    def _open(self, file: File) -> None:
        if isinstance(file, str | os.PathLike):
            if _is_special(Path(file)):
                raise self._error("not a plain file")
            self._file = Path(file).open("rb")  # noqa: SIM115  closed by `close`
            self._size = os.fstat(self._file.fileno()).st_size
            return
        content: Any = file.read()
        if not isinstance(content, bytes | bytearray | memoryview):
            found = f"reading gives {type(content).__name__}, not bytes"
            raise UsageError(f"{self.name}: {found}; open the file with mode 'rb'")
        self._content, self._size = memoryview(content), len(content)

    def __enter__(self) -> CubeReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _error(self, message: str, offset: int | None = None) -> SketchFileError:
        return SketchFileError(message, file=self.name, offset=offset)

    def _read_error(self, error: OSError, offset: int | None = None) -> SketchFileError:
        """Return SketchFileError if there is no such file, UnreadableError if it cannot be read at the moment."""
        missing = isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError)
        kind = SketchFileError if missing else UnreadableError
        return kind(f"cannot be read: {error.strerror or error}", file=self.name, offset=offset)

    def _verify(self) -> dict[str, Any]:
        head = self._read_at(0, HEAD_BYTES)
        start = head[: _START.size]
        if start[: len(MAGIC)] != MAGIC[: len(start)] or not start:
            from superhosts.core.filetypes import not_a_sketch  # Most files are sketches.

            raise self._error(not_a_sketch(head))
        if len(start) < _START.size:
            raise self._error(f"truncated after {counted(len(start), 'byte')}", len(start))
        _, version, length = _START.unpack(start)
        self._end = self._size - DIGEST
        if version not in READ_VERSIONS:
            self._first = 0
            self._verify_digest()  # In a damaged file the version itself may be wrong.
            message = f"format version {version}; this program reads versions {' and '.join(map(str, READ_VERSIONS))}"
            error = VersionError(message, file=self.name, offset=len(MAGIC))
            error.is_newer = version > max(READ_VERSIONS)
            raise error
        if length > self._max_header:
            limit = f"the header takes {format_size(length)}, the limit is {format_size(self._max_header)}"
            raise self._error(f"too large or damaged: {limit}", _START.size)
        if _START.size + length > self._end:
            raise self._error("truncated or damaged: the header extends past the end of the file", _START.size)
        self._first = _START.size + length
        text = self._verify_digest()
        try:
            header = parse_header(text)
            _ARRAYS(header["arrays"], "arrays")
        except FieldError as error:
            raise self._error(f"header {error}") from None
        except ValueError as error:
            raise self._error(f"damaged: the header {error}", _START.size) from None
        return header

    def _verify_digest(self) -> bytes:
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
            raise self._error("truncated or damaged: the checksum does not match")
        return bytes(text[_START.size :])

    def array_bytes(self) -> int:
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in self._shapes().values())

    def _shapes(self) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
        shapes = {}
        for number, entry in enumerate(self.header["arrays"]):
            name = entry["name"]
            if name in shapes:
                raise self._error(f"header {FieldError(f'arrays[{number}].name', f'duplicate array {name}')}")
            shapes[name] = np.dtype(entry["dtype"]), tuple(entry["shape"])
        return shapes

    def places(self) -> dict[str, list[Place]]:
        """Return the positions of each array's blocks. Raise SketchFileError unless the blocks fill the file."""
        offset = self._first
        places: dict[str, list[Place]] = {}
        for name, (dtype, shape) in self._shapes().items():
            own = places.setdefault(name, [])
            count, step = math.prod(shape), BLOCK // dtype.itemsize
            for start in range(0, count, step):
                frame = self._read_at(offset, _FRAME.size)
                if len(frame) < _FRAME.size or offset + _FRAME.size > self._end:
                    raise self._error("damaged: a block is missing", offset)
                length = _FRAME.unpack(frame)[1]
                if length > self._end - offset - _FRAME.size:
                    raise self._error("damaged: a block extends past the end", offset)
                if length > MAX_PACKED:
                    raise self._error("damaged: a block exceeds the size limit", offset)
                own.append(Place(offset, start, min(start + step, count), dtype))
                offset += _FRAME.size + length
        if offset != self._end:
            raise self._error("damaged: there is data after the last array", offset)
        return places

    def arrays(self, prepared: Arrays | None = None, threads: int = 1) -> Arrays:
        """Read all arrays, those in `prepared` in place, which must be there with the same types and shapes."""
        prepared, shapes = prepared or {}, self._shapes()
        if missing := prepared.keys() - shapes.keys():
            raise self._error(f"damaged: missing array {', '.join(sorted(missing))}")
        for name, array in prepared.items():
            dtype, shape = shapes[name]
            if (array.dtype, array.shape) != shapes[name]:
                expected = f"expected {array.dtype} {array.shape}"
                raise self._error(f"damaged: array {name} is {dtype} {shape}, {expected}")
        places = self.places()  # Find missing blocks before allocating arrays for them.
        new = {name: np.zeros(shape, dtype) for name, (dtype, shape) in shapes.items() if name not in prepared}
        arrays = {**new, **prepared}
        self.each_block({name: block_writer(array) for name, array in arrays.items()}, threads, places)
        return arrays

    def read_array(self, name: str) -> NDArray[Any]:
        places, (dtype, shape) = self.places(), self._shapes()[name]
        array = np.zeros(shape, dtype)
        self.each_block({name: block_writer(array)}, 1, places)
        return array

    def each_block(
        self, takers: Mapping[str, Take], threads: int, places: Mapping[str, list[Place]] | None = None
    ) -> None:
        """Pass every block of the arrays named in `takers` to its taker, on up to `threads` threads, in any order."""
        import zstandard

        places = self.places() if places is None else places
        blocks = [(take, place) for name, take in takers.items() for place in places[name]]
        work = iter(blocks)

        def run() -> None:
            decompress = zstandard.ZstdDecompressor(max_window_size=2 * BLOCK).decompress  # not thread-safe
            for take, place in work:  # All threads share this iterator, which yields each item once.
                take(place.start, place.stop, self._read_block(place, decompress))

        run_parallel(run, [()] * min(threads, len(blocks)), threads)

    def _read_at(self, offset: int, length: int) -> bytes:
        offset = max(offset, 0)
        if self._file is None:
            return bytes(self._content[offset : offset + length])
        try:
            return os.pread(self._file.fileno(), length, offset)
        except OSError as error:
            raise self._read_error(error, offset) from None

    def _read_block(self, place: Place, decompress: Any) -> CodedBlock:
        import zstandard

        coding, length = _FRAME.unpack(self._read_at(place.offset, _FRAME.size))
        packed = self._read_at(place.offset + _FRAME.size, length)
        try:
            # zstandard trusts the size that a frame claims, regardless of max_output_size.
            if zstandard.frame_content_size(packed) > 2 * BLOCK:
                raise self._error("damaged: a block exceeds the size limit", place.offset)
            data = np.frombuffer(decompress(packed, max_output_size=2 * BLOCK), np.uint8)
        except zstandard.ZstdError as error:
            raise self._error(f"damaged: {error}", place.offset) from None
        block = read_block(coding, data, place.dtype, place.stop - place.start)
        if block is None:
            raise self._error("damaged: a block does not decode to its array", place.offset)
        return block
