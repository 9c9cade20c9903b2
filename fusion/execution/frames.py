"""Frames between worker and horse: a 4-byte big-endian length, then length-prefixed keys and values in turn.

Bytes in, bytes out: the worker passes a job's stored fields on without decoding them.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusion.exceptions import FusionError


class FrameError(FusionError):
    """The other side sent something that is not a frame, or one over the limit."""


def pack(fields: Mapping[bytes, bytes]) -> bytes:
    """One frame holding `fields`."""
    parts = [b""]
    size = 0
    for pair in fields.items():
        for part in pair:
            length = len(part)
            parts.append(length.to_bytes(4, "big"))
            parts.append(part)
            size += length + 4
    parts[0] = size.to_bytes(4, "big")
    return b"".join(parts)


def unpack(body: bytes) -> dict[bytes, bytes]:
    """The fields of one frame's body (without the leading length). Raises FrameError if it does not add up."""
    fields: dict[bytes, bytes] = {}
    key: bytes | None = None
    at, end = 0, len(body)
    while at < end:
        stop = at + 4 + int.from_bytes(body[at : at + 4], "big")
        if at + 4 > end or stop > end:
            raise FrameError(f"a part of a frame ends at byte {stop}, the frame at {end}")
        part = body[at + 4 : stop]
        if key is None:
            key = part
        else:
            fields[key] = part
            key = None
        at = stop
    if key is not None:
        raise FrameError(f"a frame has the key {key[:40]!r} without a value")
    return fields


class FrameReader:
    """Puts frames together from a byte stream. `limit` is the largest body in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> dict[bytes, bytes] | None:
        """The next whole frame, None if more bytes are needed. Raises FrameError; the stream is of no use after that."""
        buffer = self._buffer
        if len(buffer) < 4:
            return None
        size = int.from_bytes(buffer[:4], "big")
        if size > self._limit:
            raise FrameError(f"a frame of {size} bytes; the limit is {self._limit}")
        if len(buffer) < size + 4:
            return None
        body = bytes(buffer[4 : size + 4])
        del buffer[: size + 4]
        return unpack(body)

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)
