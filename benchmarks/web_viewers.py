"""Viewers of a dashboard: `python benchmarks/web_viewers.py URL COUNT`, until standard input ends.

Each has an event stream, and after each event asks what a page asks for. Prints "ready" when all streams are open, and
in the end how many answers and bytes came.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from urllib.parse import urlsplit

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Viewers:
    def __init__(self, url: str, count: int) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.count = count
        self.open = self.answers = self.bytes = 0
        self.ready = asyncio.Event()

    async def run(self) -> None:
        tasks = [asyncio.create_task(self.view()) for _ in range(self.count)]
        await self.ready.wait()
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for task in tasks:
            task.cancel()
        print(f"{self.answers} answers, {self.bytes / 1e6:.1f} MB", flush=True)

    async def view(self) -> None:
        events, _ = await self.connect("events")
        known: Connection | None = None  # for questions; browsers keep one open, too
        first = True
        while line := await events.readline():
            if not line.startswith(b"event: changed"):
                continue
            if first:
                first = False
                self.open += 1
                if self.open == self.count:
                    self.ready.set()
                continue
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # the run has ended
                if known is None:
                    known = await self.connect("window")
                else:
                    known[1].write(self.head("window"))
                await self.take(known[0])

    async def take(self, reader: asyncio.StreamReader) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head)
        assert found is not None
        answer = await reader.readexactly(int(found[1]))
        self.bytes += len(head) + len(answer)
        self.answers += head.startswith(b"HTTP/1.1 200 ")

    async def connect(self, name: str) -> Connection:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(self.head(name))
        return reader, writer

    def head(self, name: str) -> bytes:
        lines = [f"GET /api/{name} HTTP/1.1", f"Host: {self.host}:{self.port}", "Accept-Encoding: gzip", "", ""]
        return "\r\n".join(lines).encode()


if __name__ == "__main__":
    asyncio.run(Viewers(sys.argv[1], int(sys.argv[2])).run())
