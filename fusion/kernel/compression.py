"""Compressed texts: arguments, results and meta above a size are compressed by zlib, as in RQ.

The first byte tells them apart: no JSON begins with `x`, and zlib's output with its usual window always does.
"""

from __future__ import annotations

from fusion.exceptions import DeserializationError

#: Bytes from which on compression is tried; for less it is not worth the time.
THRESHOLD = 512
#: Largest text that is compressed, in bytes: 1 MB of zlib may hold a gigabyte. A larger text is stored as it is.
LARGEST = 16 * 1024 * 1024
#: Bytes that are decompressed together.
_CHUNK = 64 * 1024
_MARK = b"x"


def compressed(text: bytes) -> bytes:
    """Return the form in which to store a JSON text: compressed, if it is long and that is shorter."""
    if not THRESHOLD <= len(text) <= LARGEST:
        return text
    import zlib

    found = zlib.compress(text)
    return found if len(found) < len(text) else text


def plain(stored: bytes, largest: int = LARGEST) -> bytes:
    """Return the stored JSON text, compressed or not. DeserializationError if it is no zlib stream, or would be larger than `largest` bytes."""
    if stored[:1] != _MARK:
        return stored
    import zlib

    try:
        return inflated(stored, largest)
    except zlib.error as error:
        raise DeserializationError(f"neither JSON nor compressed: {error}") from None


def inflated(stored: bytes, largest: int = LARGEST) -> bytes:
    """Return the content of a zlib stream. zlib.error if it is none; DeserializationError if the content would be larger than `largest`
    bytes."""
    import zlib

    # Counted before anything is kept: a zip bomb must not take even as much memory as the largest text may.
    reader, size = zlib.decompressobj(), 0
    for at in range(0, len(stored), _CHUNK):
        rest = stored[at : at + _CHUNK]  # the reader copies its unread input each time
        while rest and not reader.eof:
            size += len(reader.decompress(rest, _CHUNK))
            if size > largest:
                raise DeserializationError(f"what was compressed is larger than {largest} bytes")
            rest = reader.unconsumed_tail
    return zlib.decompressobj().decompress(stored)
