"""The .cube file: a header and named arrays, compressed, checked, written whole or not at all.

    magic · version · length of the header · header (JSON) · blocks of the arrays · BLAKE2b of all that

A reader checks the digest before it believes anything, refuses headers that ask for more memory than it may take, and
executes nothing: arrays are plain little-endian numbers whose type and shape stand in the header. This module
knows a header and arrays; what they mean is for the detectors to say.

Sparse bit columns are stored as gaps: the zeros between one set bit and the next, a byte each (255: go on), then
zstandard. At 5 M flows a 128 MiB cube takes about a tenth of its memory. Denser arrays are stored byte plane by byte
plane, so that the bytes that are alike (high bits of labels) stand together.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from superhosts.compiled import compiled
from superhosts.errors import OutputError, SketchFileError
from superhosts.units import format_size

MAGIC = b"\x89CUBE\r\n\x1a"
VERSION = 2  # 1: rows of a cube were not turned
BLOCK = 1 << 20  # bytes of an array that are compressed together
MAX_HEADER = 64 << 20
DIGEST = 32
GAPS, PLANES = 0, 1
_START = struct.Struct("<8sII")  # magic, version, bytes of the header
_FRAME = struct.Struct("<BI")  # coding, bytes of the block as compressed
Arrays = dict[str, NDArray[Any]]


@compiled
def _encode_gaps(words: NDArray[np.uint64], out: NDArray[np.uint8]) -> int:
    """Write the gaps between set bits; return the bytes used, −1 when `out` is too small."""
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
            for step in (32, 16, 8, 4, 2, 1):  # position of the lowest set bit by halving
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
def _decode_gaps(data: NDArray[np.uint8], words: NDArray[np.uint64]) -> bool:
    """Set the bits that the gaps name; False when they run past the end."""
    position = np.int64(0)
    for byte in data:
        position += np.int64(byte)
        if byte == 255:
            continue
        if position >= len(words) * 64:
            return False
        words[position >> 6] |= np.uint64(1) << np.uint64(position & 63)
        position += 1
    return True


def _encode(block: NDArray[Any], compress: Any) -> bytes:
    if block.dtype == np.uint64:
        out = np.empty(block.nbytes // 2, np.uint8)
        used = _encode_gaps(block, out)
        if used >= 0:
            data: bytes = compress(out[:used].tobytes())
            return _FRAME.pack(GAPS, len(data)) + data
    planes = block.view(np.uint8).reshape(-1, block.dtype.itemsize).T.tobytes()
    data = compress(planes)
    return _FRAME.pack(PLANES, len(data)) + data


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
                    put(_encode(block, compress))
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # where it could not be made, there is nothing to remove
            temporary.unlink()


class Reader:
    """An open, verified file: its header, and its arrays to be read once, in order."""

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        try:
            self._file: IO[bytes] = Path(path).open("rb")  # noqa: SIM115  # closed by close() or the with statement
        except OSError as error:
            raise SketchFileError(f"cannot be read: {error.strerror or error}", file=self.name) from None
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

    def _verify(self) -> dict[str, Any]:
        file = self._file
        try:
            size = os.fstat(file.fileno()).st_size
            start = file.read(_START.size)
        except OSError as error:
            raise self._bad(f"cannot be read: {error.strerror or error}") from None
        if start[: len(MAGIC)] != MAGIC[: len(start)] or not start:
            raise self._bad("not a .cube file")
        if len(start) < _START.size:
            raise self._bad(f"cut off after {len(start)} bytes", len(start))
        _, version, length = _START.unpack(start)
        if version != VERSION:
            raise self._bad(f"format version {version}; this program reads version {VERSION}", len(MAGIC))
        self._end = size - DIGEST
        if length > MAX_HEADER or _START.size + length > self._end:
            raise self._bad("cut off or damaged: the header runs past the end of the file", _START.size)
        file.seek(0)
        digest = hashlib.blake2b(digest_size=DIGEST)
        left = self._end
        while left:
            piece = file.read(min(left, BLOCK))
            if not piece:
                break
            digest.update(piece)
            left -= len(piece)
        if digest.digest() != file.read(DIGEST):
            raise self._bad("cut off or damaged: the checksum does not match")
        file.seek(_START.size)
        try:
            header = json.loads(file.read(length))
        except (ValueError, RecursionError):
            raise self._bad("damaged: the header is not JSON", _START.size) from None
        if not isinstance(header, dict) or not isinstance(header.get("arrays"), list):
            raise self._bad("damaged: the header lists no arrays", _START.size)
        return header

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
                name, shape = str(entry["name"]), [int(side) for side in entry["shape"]]
            except (ArithmeticError, TypeError, KeyError, ValueError):
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

    def arrays(self, prepared: Arrays | None = None) -> Arrays:
        """Read the arrays; into `prepared` ones where those are given, which must have the stored shapes."""
        import zstandard

        decompress = zstandard.ZstdDecompressor().decompress
        arrays: Arrays = {}
        for entry, (dtype, _) in zip(self.header["arrays"], self._shapes().values(), strict=True):
            name, shape = str(entry["name"]), tuple(entry["shape"])
            array = (prepared or {}).get(name)
            if array is None:
                array = np.zeros(shape, dtype)
            if array.shape != shape or array.dtype != dtype:
                raise self._bad(f"damaged: array {name} is {dtype} {shape}, expected {array.dtype} {array.shape}")
            for block in _blocks(array):
                self._read_block(block, decompress)
            arrays[name] = array
        if self._file.tell() != self._end:
            raise self._bad("damaged: more follows the last array", self._file.tell())
        return arrays

    def _read_block(self, block: NDArray[Any], decompress: Any) -> None:
        import zstandard

        offset = self._file.tell()
        frame = self._file.read(_FRAME.size)
        if len(frame) < _FRAME.size:
            raise self._bad("damaged: a block is missing", offset)
        coding, length = _FRAME.unpack(frame)
        if length > self._end - offset:
            raise self._bad("damaged: a block runs past the end", offset)
        try:
            packed = self._file.read(length)
            if zstandard.frame_content_size(packed) > 2 * BLOCK:  # zstandard believes this size, whatever the limit
                raise self._bad("damaged: a block is larger than blocks are", offset)
            data = np.frombuffer(decompress(packed, max_output_size=2 * BLOCK), np.uint8)
        except zstandard.ZstdError as error:
            raise self._bad(f"damaged: {error}", offset) from None
        if coding == GAPS and block.dtype == np.uint64:
            block.fill(0)
            good = _decode_gaps(data, block)
        else:
            good = coding == PLANES and len(data) == block.nbytes
            if good:
                block.view(np.uint8)[:] = data.reshape(block.dtype.itemsize, -1).T.reshape(-1)
        if not good:
            raise self._bad("damaged: a block does not decode to its array", offset)
