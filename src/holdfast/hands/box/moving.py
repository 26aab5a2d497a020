"""A tar on its way, in the child that makes or reads it: a piece goes only when the other side asks for it."""

from __future__ import annotations

import base64
import io
import json
import os
from typing import IO, Any, cast

from holdfast.hands.box import tar
from holdfast.hands.box.text import Refusal
from holdfast.hands.box.wire import Message, encode

STEPS = ("pack", "unpack")
"""The steps of this module."""


class _Line:
    """The conversation with the agent, blocking. When the agent is gone, so is this process."""

    def __init__(self, link: int) -> None:
        os.set_blocking(link, True)
        self._link = link
        self._in = open(link, "rb", closefd=False)

    def tell(self, message: Message) -> None:
        """Say something."""
        left = memoryview(encode(message))
        while left:
            left = left[os.write(self._link, left) :]

    def hear(self) -> Message:
        """The next that is said."""
        line = self._in.readline()
        if not line:
            os._exit(0)
        message: Message = json.loads(line)
        return message


class _Outlet(io.RawIOBase):
    """What is written goes out in pieces, each when it is asked for."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._left = bytearray()

    def write(self, data: Any) -> int:
        """Gather a piece, wait to be asked, and hand it on."""
        self._left += data
        if len(self._left) >= tar.CHUNK:
            self.send()
        return len(data)

    def send(self) -> None:
        """Hand on what there is, if anything."""
        if self._left:
            self._line.hear()
            self._line.tell({"piece": {"data": base64.b64encode(self._left).decode()}})
            self._left.clear()


class _Inlet(io.RawIOBase):
    """What comes in, a piece at a time."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._left = io.BytesIO()
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes; none at the end."""
        data = self._left.read(size)
        if data or self._ended:
            return data
        piece = base64.b64decode(self._line.hear()["data"])
        self._ended = not piece
        if piece:
            self._line.tell({"piece": {}})
        self._left = io.BytesIO(piece)
        return self._left.read(size)

    def drain(self) -> None:
        """Take what comes after the end of the tar."""
        while self.read(tar.CHUNK):
            pass


def move(step: str, path: str, place: dict[str, Any], link: int) -> dict[str, Any]:
    """Pack or unpack a folder, `path` being as the caller gave it."""
    line = _Line(link)
    folder = os.path.join(place["root"], path)
    try:
        if step == "pack":
            outlet = _Outlet(line)
            entries = tar.pack(folder, cast("IO[bytes]", outlet))
            outlet.send()
            line.hear()
        else:
            inlet = _Inlet(line)
            entries = tar.unpack(folder, cast("IO[bytes]", inlet))
            inlet.drain()
    except Refusal as refusal:
        return {"ok": False, "output": str(refusal)}
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return {"ok": False, "output": f"{where}{error.strerror or error}"}
    return {"ok": True, "output": "", "entries": entries}
