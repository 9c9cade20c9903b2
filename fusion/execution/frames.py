"""Frames between worker and horse: the body's length, then in it how many parts, each part's length, and the parts, keys and values in turn.
All numbers are 4 bytes, big-endian.

Bytes in, bytes out: the worker passes a job's stored fields on without decoding them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from fusion.exceptions import FusionError

#: A converter for each count of numbers, enough for most frames. `struct.pack` would find, or make, one by its format each time.
_NUMBERS = [struct.Struct(f">{count}I") for count in range(80)]


def _numbers(count: int) -> struct.Struct:
    return _NUMBERS[count] if count < len(_NUMBERS) else struct.Struct(f">{count}I")


class FrameError(FusionError):
    """The other side sent something that is not a frame, or one over the limit."""

    code = "FUS-128"


def pack(fields: Mapping[bytes, bytes]) -> bytes:
    """Return one frame with `fields`."""
    parts: list[bytes] = []
    for pair in fields.items():
        parts += pair
    count, lengths = len(parts), list(map(len, parts))
    return _numbers(count + 2).pack(sum(lengths) + 4 * count + 4, count, *lengths) + b"".join(parts)


def unpack(body: bytes) -> dict[bytes, bytes]:
    """Return the fields of one frame's body (without the leading length). FrameError if the lengths don't match."""
    count, size = int.from_bytes(body[:4], "big"), len(body)
    at = 4 * count + 4
    if at > size or count % 2:
        raise FrameError(f"a frame of {size} bytes can't have {count} parts")
    fields, lengths = {}, iter(_numbers(count).unpack_from(body, 4))
    for key in lengths:
        middle = at + key
        end = middle + next(lengths)
        fields[body[at:middle]] = body[middle:end]
        at = end
    if at != size:
        raise FrameError(f"the parts of a frame end at byte {at}, the frame at {size}")
    return fields


class FrameReader:
    """Puts frames together from a byte stream. `limit` is the largest body in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> None:
        """Add bytes in the order in which they came."""
        self._buffer += data

    def only(self, data: bytes) -> dict[bytes, bytes] | None:
        """Return the frame if these bytes are exactly one, as on a socket with packets; else None, and the caller must `feed` them.
        FrameError as for `next`."""
        size = len(data) - 4
        if self._buffer or size < 0 or size > self._limit or int.from_bytes(data[:4], "big") != size:
            return None
        return unpack(data[4:])

    def next(self) -> dict[bytes, bytes] | None:
        """Return the next whole frame, None if more bytes are needed. After a FrameError the stream can't be used."""
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
