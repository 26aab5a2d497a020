"""The floor of bench/serve.py: a bare server that sends its own times, so many a second, gathered in frames."""

from __future__ import annotations

import asyncio
import sys
import time

RATE, FRAME_S = float(sys.argv[1]), float(sys.argv[2])


async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the times at which events were due, until the client leaves."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
    number, began = 0, time.time()
    try:
        while True:
            await asyncio.sleep(max(0.0, began + (number + 1) / RATE - time.time()))
            held: list[float] = []
            while began + (number + 1) / RATE <= time.time():
                number += 1
                held.append(began + number / RATE)
            writer.write(b"data: " + repr(held).encode() + b"\n\n")
            await writer.drain()
            await asyncio.sleep(FRAME_S)
    except ConnectionError:
        pass


async def main() -> None:
    """Serve on a free port, and print it."""
    server = await asyncio.start_server(stream, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
