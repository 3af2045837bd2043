"""Read a .cube file without superhosts, as format.md describes it: `python read_cube.py FILE [KEYFILE]`."""

import json
import math
import struct
import sys
from hashlib import blake2b
from ipaddress import ip_network
from itertools import accumulate, islice
from pathlib import Path

try:
    from compression.zstd import decompress  # Python 3.14 or later
except ImportError:
    from zstandard import decompress


def read(path):
    """Return the version, the header, and the arrays of each part by name, each a flat tuple of numbers."""
    data = Path(path).read_bytes()
    magic, version, length = struct.unpack_from("<8sII", data)
    digest = blake2b(data[:-32], digest_size=32).digest()
    if magic != b"\x89CUBE\r\n\x1a" or version not in (2, 3) or digest != data[-32:]:
        sys.exit(f"{path}: not a .cube file of version 2 or 3, or damaged")
    header, offset = json.loads(data[16 : 16 + length]), 16 + length
    parts = [{} for _ in header["parts"]]
    for entry in header["arrays"]:
        size, content = int(entry["dtype"][2]), b""
        while left := size * math.prod(entry["shape"]) - len(content):
            coding, packed = struct.unpack_from("<BI", data, offset)
            offset += 5 + packed
            content += decode(coding, decompress(data[offset - packed : offset]), size, min(left, 1 << 20))
        number, name = entry["name"].split("/")
        parts[int(number)][name] = struct.unpack(f"<{len(content) // size}{'-BH-I---Q'[size]}", content)
    return version, header, parts


def decode(coding, block, size, length):
    """Return the bytes of a block. Coding 0 is gaps between set bits, coding 1 is byte planes."""
    out, bit = bytearray(length), -1
    for plane in range(size * coding):
        out[plane::size] = block[plane * length // size : (plane + 1) * length // size]
    for gap in b"" if coding else block:
        bit += gap + (gap < 255)
        if gap < 255:
            out[bit >> 3] |= 1 << (bit & 7)
    return out


def hosts_of(arrays, bits):
    """Return the rows of each mangled host of a cube; in the bits form, no rows of each host that a label names."""
    if "labels" in arrays:
        labels = zip(*[iter(arrays["labels"])] * (bits // 32), strict=True)
        whole = [words for words in labels if words[0] and len({word >> 32 for word in words}) == 1]
        return {sum((word % (1 << 32)) << 32 * limb for limb, word in enumerate(words)): [] for words in whole}
    half, rows, found = len(arrays["counts"]) // 2, iter(arrays["rows"]), {}
    for count, group in zip(arrays["counts"], grouped(arrays["hosts"], arrays["counts"][half:]), strict=False):
        found |= {m: [row - 1 for row in accumulate(each + 1 for each in islice(rows, count))] for m in group}
    return found


def tallies_of(arrays, listed):
    """Return the tallies of a cube, the peers of mangled hosts, by identity. `listed`: the hosts that it lists."""
    half, peers = len(arrays.get("tallies", ())) // 2, iter(arrays.get("tallypeers", ()))
    identities, sizes = (arrays["tallies"][:half], arrays["tallies"][half:]) if half else ((), ())
    if "rows" in arrays:
        return {each: {m: len(rows) + next(peers) for m, rows in listed.items()} for each in identities}
    groups = grouped(arrays["tallyhosts"], sizes) if half else ()
    return {each: {m: next(peers) for m in group} for each, group in zip(identities, groups, strict=True)}


def grouped(stored, sizes):
    """Yield the hosts of each group, which are stored as differences."""
    steps = zip(stored[: -sum(sizes)] or (0,) * sum(sizes), stored[-sum(sizes) :], strict=True)
    for size in sizes:
        yield [m - 1 for m in accumulate((high << 64 | low) + 1 for high, low in islice(steps, size))]


def make_key(secret):
    """Return the fingerprint of a key, and the words that are drawn from it."""
    root = blake2b(secret, person=b"superhosts", digest_size=32).digest()
    drawn = [blake2b(bytes([number, 0]), key=root, person=b"superhosts key", digest_size=8) for number in range(32)]
    fingerprint = blake2b(root, person=b"superhosts print", digest_size=8).hexdigest()
    return fingerprint, [int.from_bytes(each.digest(), "little") for each in drawn]


def unmangle(m, bits, words):
    """Return the host whose mangled form is m."""
    if bits == 128:  # four rounds of a Feistel network, the last one first
        high, low = m >> 64, m % (1 << 64)
        for word in words[10:6:-1]:
            x = high ^ word ^ words[6]
            for shift, odd in ((32, words[3] | 1), (29, words[4] | 1), (32, 1)):
                x = (x ^ x >> shift) * odd % (1 << 64)
            high, low = low ^ x, high
        return high << 64 | low
    factors = [word >> 32 | 1 for word in words[2::-1]] if bits == 32 else [word | 1 for word in words[4:2:-1]]
    for shift, odd in zip((15, 16, 15, 16) if bits == 32 else (32, 29, 32), (*factors, 1), strict=True):
        m = (m ^ m >> shift ^ m >> 2 * shift) * pow(odd, -1, 1 << bits) % (1 << bits)
    return m ^ (words[5] % (1 << 32) if bits == 32 else words[6])


if __name__ == "__main__":
    version, header, parts = read(sys.argv[1])
    fingerprint, words = make_key(Path(sys.argv[2]).read_bytes().rstrip(b"\r\n")) if sys.argv[2:] else (None, [])
    print("version", version, json.dumps(header))
    for part, arrays in zip(header["parts"], parts, strict=True):
        print("set bits", {name: sum(map(int.bit_count, numbers)) for name, numbers in arrays.items()})
        letters = iter(arrays.get("names", ()))
        print("names", [bytes(islice(letters, size)).decode() for size in arrays.get("namesizes", ())])
        if part["detector"] == "cube" and part["key"] == fingerprint and "pairs" not in arrays:
            bits, (family, prefix) = part["geometry"]["key_bits"], part["format"]
            listed = hosts_of(arrays, bits)
            tallies = tallies_of(arrays, listed)
            for m in {m: None for each in (listed, *tallies.values()) for m in each}:
                host, known = unmangle(m, bits, words), [tally[m] for tally in tallies.values() if m in tally]
                address = f"#{host:x}" if family == 0 else ip_network((host << 64 * (bits == 64), prefix), strict=False)
                print(address, *known)
