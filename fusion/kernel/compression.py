"""Compressed texts: arguments, results and meta above a size are stored so from the second layout of the data on, by zlib as RQ does it.

JSON begins with no letter `x`, and what zlib wrote with its usual window always does: the first byte tells them apart.
"""

from __future__ import annotations

from fusion.exceptions import DeserializationError

#: Bytes from which on it is tried; less is not worth its time.
THRESHOLD = 512
#: Largest size of what was compressed, in bytes: 1 MB of zlib may hold a gigabyte. What is larger is stored as it is.
LARGEST = 16 * 1024 * 1024
#: Bytes that are looked at together.
_CHUNK = 64 * 1024
_MARK = b"x"


def compressed(text: bytes) -> bytes:
    """The form to store of a JSON text: compressed if it is long, and shorter so."""
    if not THRESHOLD <= len(text) <= LARGEST:
        return text
    import zlib

    found = zlib.compress(text)
    return found if len(found) < len(text) else text


def plain(stored: bytes, largest: int = LARGEST) -> bytes:
    """The JSON text that was stored, compressed or not. DeserializationError for what is no zlib stream, or would be larger than that many
    bytes."""
    if stored[:1] != _MARK:
        return stored
    import zlib

    try:
        return inflated(stored, largest)
    except zlib.error as error:
        raise DeserializationError(f"neither JSON nor compressed: {error}") from None


def inflated(stored: bytes, largest: int = LARGEST) -> bytes:
    """The content of a zlib stream. zlib.error if it is none; DeserializationError if that would be larger than so many bytes."""
    import zlib

    # Counted before anything is kept: a bomb must not take even as much memory as the largest text may.
    reader, size = zlib.decompressobj(), 0
    for at in range(0, len(stored), _CHUNK):
        rest = stored[at : at + _CHUNK]  # the reader copies what it did not get to each time
        while rest and not reader.eof:
            size += len(reader.decompress(rest, _CHUNK))
            if size > largest:
                raise DeserializationError(f"what was compressed is larger than {largest} bytes")
            rest = reader.unconsumed_tail
    return zlib.decompressobj().decompress(stored)
