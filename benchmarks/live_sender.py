"""Let a capture arrive at an interface at a stated rate: `python live_sender.py INTERFACE FILE RATE [TIMES]`.

What sends shares the machine with what is measured, so it has to be light. A socket that sends into the other end of a
veth pair takes 1.5 µs for each packet, most of it in the pair itself. So the kernel makes the packets: it runs a short
program for each (BPF_PROG_RUN of XDP with live frames), which copies the next frame, cut to 60 bytes, out of an array;
then the packet arrives at the interface like one from a wire.

It says when it is ready and waits for a line on standard input. In the end it prints what it has sent, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import struct
import sys
import time
from typing import Any

import numpy as np

FRAME, SLOT = 60, 64  # bytes of a frame: the shortest of Ethernet, with both addresses; bytes of a place in the array
BATCH = 64  # frames that the kernel handles at once
BURST = 0.2  # seconds: a call takes a twentieth of a second before its first frame, so each makes many
MAP_CREATE, PROG_LOAD, PROG_RUN, MAP_UPDATE = 0, 5, 10, 2
ARRAY, MMAPABLE, XDP, LIVE_FRAMES = 2, 1 << 10, 6, 1 << 1
SYS_BPF = {"x86_64": 321, "aarch64": 280}
libc = ctypes.CDLL(None, use_errno=True)


def bpf(command: int, attributes: bytes) -> int:
    """Call the kernel."""
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    answer = libc.syscall(SYS_BPF[os.uname().machine], command, buffer, len(attributes))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer)


def instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    """Return one instruction."""
    return struct.pack("<BBhi", code, source << 4 | to, offset, value)


def lookup(map_number: int, key: int) -> list[bytes]:
    """Return the instructions that make register 0 the place of a map's value; the key lies on the stack."""
    return [
        instruction(0x18, 1, 1, 0, map_number),  # r1 = the map
        instruction(0),
        instruction(0xBF, 2, 10),  # r2 = the key
        instruction(0x07, 2, 0, 0, key),
        instruction(0x85, 0, 0, 0, 1),  # r0 = bpf_map_lookup_elem
        instruction(0x55, 0, 0, 2, 0),  # unless it is 0
        instruction(0xB7, 0, 0, 0, 1),  # drop
        instruction(0x95),
    ]


def program(frames: int, position: int, count: int) -> bytes:
    """Return the program: copy frame number `position` over the packet, and count."""
    code = [
        instruction(0x61, 7, 1, 0),  # r7 = data
        instruction(0x61, 3, 1, 4),  # r3 = its end
        instruction(0xBF, 4, 7),
        instruction(0x07, 4, 0, 0, FRAME),
        instruction(0xBD, 4, 3, 2),  # unless it is too short
        instruction(0xB7, 0, 0, 0, 1),
        instruction(0x95),
        instruction(0x62, 10, 0, -4, 0),
        *lookup(position, -4),
        instruction(0x79, 8, 0, 0),  # r8 = the position, which then goes on
        instruction(0xBF, 1, 8),
        instruction(0x07, 1, 0, 0, 1),
        instruction(0x7B, 0, 1, 0),
        instruction(0x97, 8, 0, 0, count),
        instruction(0x63, 10, 8, -8),
        *lookup(frames, -8),
    ]
    for place in range(0, FRAME & ~7, 8):
        code += [instruction(0x79, 1, 0, place), instruction(0x7B, 7, 1, place)]
    code += [instruction(0x61, 1, 0, FRAME & ~7), instruction(0x63, 7, 1, FRAME & ~7)]
    return b"".join([*code, instruction(0xB7, 0, 0, 0, 2), instruction(0x95)])  # pass


def load(code: bytes) -> int:
    """Load the program; the kernel's objection is shown if it has one."""
    text, licence, log = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"BSD"), bytes(1 << 16)
    said = ctypes.create_string_buffer(log, len(log))
    places = [ctypes.addressof(each) for each in (text, licence, said)]
    try:
        return bpf(PROG_LOAD, struct.pack("=IIQQIIQ", XDP, len(code) // 8, *places[:2], 1, len(log), places[2]))
    except OSError:
        print(said.value.decode(), file=sys.stderr)
        raise


def read_frames(path: str) -> Any:
    """Return the frames of a classic capture, each cut or filled to FRAME bytes."""
    data = np.fromfile(path, np.uint8)
    places, at, text = [], 24, data.tobytes()
    while at < len(data):
        places.append(at + 16)
        at += 16 + struct.unpack_from("<I", text, at + 8)[0]
    padded = np.concatenate([data, np.zeros(FRAME, np.uint8)])
    return padded[np.array(places)[:, None] + np.arange(FRAME)]


def main() -> None:
    """Send."""
    interface, path, rate, times = sys.argv[1], sys.argv[2], float(sys.argv[3]), int((sys.argv[4:] or ["1"])[0])
    frames = read_frames(path)
    array = bpf(MAP_CREATE, struct.pack("=IIIII", ARRAY, 4, SLOT, len(frames), MMAPABLE))
    position = bpf(MAP_CREATE, struct.pack("=IIIII", ARRAY, 4, 8, 1, 0))
    size = -(-len(frames) * SLOT // mmap.PAGESIZE) * mmap.PAGESIZE
    room = np.frombuffer(mmap.mmap(array, size), np.uint8)[: len(frames) * SLOT].reshape(len(frames), SLOT)
    room[:, :FRAME] = frames
    own = load(program(array, position, len(frames)))
    packet = ctypes.create_string_buffer(FRAME)
    context = ctypes.create_string_buffer(struct.pack("=IIIIII", 0, FRAME, 0, socket.if_nametoindex(interface), 0, 0))
    places = ctypes.addressof(packet), ctypes.addressof(context)

    def run(count: int) -> None:
        bpf(
            PROG_RUN,
            struct.pack(
                "=IIIIQQIIIIQQIIII", own, 0, FRAME, 0, places[0], 0, count, 0, 24, 0, places[1], 0, LIVE_FRAMES, 0,
                min(count, BATCH), 0,
            ),
        )  # fmt: skip

    print("ready", flush=True)
    sys.stdin.readline()
    total, sent, late, step = len(frames) * times, 0, 0.0, int(rate * BURST) or len(frames)
    begin = time.perf_counter()
    while sent < total:
        wait = begin + sent / rate - time.perf_counter() if rate else 0.0
        if wait > 0:
            time.sleep(wait)
            continue
        late = max(late, -wait)
        run(min(step, total - sent))
        sent += min(step, total - sent)
    seconds = time.perf_counter() - begin
    print(json.dumps({"sent": sent, "seconds": seconds, "late": late}), flush=True)


if __name__ == "__main__":
    main()
