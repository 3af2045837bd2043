"""Viewers of a dashboard: `python benchmarks/web_viewers.py URL COUNT`, until standard input ends.

Each has an event stream, and after each event asks what a page asks for. Prints "ready" when all streams are open, and
in the end how many answers and bytes came.
"""

from __future__ import annotations

import asyncio
import sys
from urllib.parse import urlsplit


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
        reader, _ = await self.ask("events")
        first = True
        while line := await reader.readline():
            if not line.startswith(b"event: changed"):
                continue
            if first:
                first = False
                self.open += 1
                if self.open == self.count:
                    self.ready.set()
                continue
            await self.take("window")

    async def take(self, name: str) -> None:
        try:
            reader, writer = await self.ask(name)
            answer = await reader.read()
            self.bytes += len(answer)
            self.answers += 1
            writer.close()
        except OSError:  # the run has ended
            pass

    async def ask(self, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        head = f"GET /api/{name} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAccept-Encoding: gzip\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode())
        return reader, writer


if __name__ == "__main__":
    asyncio.run(Viewers(sys.argv[1], int(sys.argv[2])).run())
