from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusion.execution.frames import FrameError, FrameReader, pack, unpack

FIELDS = st.dictionaries(st.binary(max_size=20), st.binary(max_size=300), max_size=8)


def test_layout() -> None:
    assert pack({b"a": b"xyz"}) == b"\0\0\0\x10" + b"\0\0\0\x02" + b"\0\0\0\x01" + b"\0\0\0\x03" + b"axyz"
    assert pack({}) == b"\0\0\0\x04" + b"\0\0\0\0"


@given(st.lists(FIELDS, max_size=5), st.integers(min_value=1, max_value=50))
def test_frames_survive_any_splitting(frames: list[dict[bytes, bytes]], step: int) -> None:
    stream = b"".join(map(pack, frames))
    reader = FrameReader(10_000)
    found = []
    for at in range(0, len(stream), step):
        reader.feed(stream[at : at + step])
        while (frame := reader.next()) is not None:
            found.append(frame)
    assert found == frames
    assert reader.pending == 0


def test_a_truncated_frame_is_no_frame() -> None:
    reader = FrameReader(1000)
    reader.feed(pack({b"kind": b"finished"})[:-1])
    assert reader.next() is None
    assert reader.pending > 0


def test_limit() -> None:
    frame = pack({b"k": b"x" * 87})
    assert len(frame) - 4 == 100
    reader = FrameReader(100)
    reader.feed(frame)
    assert reader.next() == {b"k": b"x" * 87}
    reader = FrameReader(99)
    reader.feed(frame[:4])
    with pytest.raises(FrameError, match="100 bytes; the limit is 99"):
        reader.next()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0",  # half a number
        b"\0\0\0\x01" + b"\0\0\0\x01a",  # a key without a value
        b"\0\0\0\x02" + b"\0\0\0\x01\0\0\0\x09" + b"axyz",  # a part that ends beyond the frame
        b"\0\0\0\x02" + b"\0\0\0\x01\0\0\0\x02" + b"axyz",  # more than its parts
        b"\0\0\0\x02" + b"\0\0\0\x01\0\0",  # half a length
        b"\xff" * 12,
    ],
)
def test_garbage(body: bytes) -> None:
    with pytest.raises(FrameError):
        unpack(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_an_error(data: bytes) -> None:
    reader = FrameReader(1000)
    reader.feed(data)
    try:
        while reader.next() is not None:
            pass
    except FrameError:
        pass


@given(st.lists(st.lists(FIELDS, min_size=1, max_size=3), max_size=4), st.integers(min_value=0, max_value=12))
def test_a_packet_that_is_one_frame_is_read_as_such(packets: list[list[dict[bytes, bytes]]], cut: int) -> None:
    """Whatever the packets are, both ways together find all frames in their order."""
    reader, found = FrameReader(10_000), []
    pieces = [piece for frames in packets for piece in _cut(b"".join(map(pack, frames)), cut)]
    for piece in pieces:
        if (frame := reader.only(piece)) is not None:
            found.append(frame)
            continue
        reader.feed(piece)
        while (frame := reader.next()) is not None:
            found.append(frame)
    assert found == [frame for frames in packets for frame in frames]
    assert reader.pending == 0


def _cut(data: bytes, at: int) -> list[bytes]:
    return [data[:at], data[at:]]


def test_a_packet_over_the_limit_is_left_to_the_reader_that_refuses_it() -> None:
    reader, frame = FrameReader(99), pack({b"k": b"x" * 87})
    assert reader.only(frame) is None
    reader.feed(frame)
    with pytest.raises(FrameError, match="the limit is 99"):
        reader.next()
