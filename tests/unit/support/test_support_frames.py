from __future__ import annotations

import struct

import pytest

from support.clusters.frames import (
    Api,
    FrameError,
    FrameSplitter,
    Request,
    answer_error,
    correlation_id,
    parse_request,
    with_error,
)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def request_frame(key: int, version: int, body: bytes = b"", client: str | None = "me") -> bytes:
    return framed(struct.pack(">hhi", key, version, 7) + string(client) + body)


PRODUCER = struct.pack(">qh", 4000, 3)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (request_frame(Api.METADATA, 12, b"\0junk"), Request(3, 12, 7, "me")),
        (request_frame(Api.END_TXN, 1, string("t-1") + PRODUCER + b"\1"), Request(26, 1, 7, "me", "t-1", commit=True)),
        (request_frame(Api.END_TXN, 1, string("t-1") + PRODUCER + b"\0"), Request(26, 1, 7, "me", "t-1", commit=False)),
        (request_frame(Api.END_TXN, 5, b"\0\4t-1" + PRODUCER + b"\1\0"), Request(26, 5, 7, "me", "t-1", commit=True)),
        (request_frame(Api.PRODUCE, 7, string("t-1")), Request(0, 7, 7, "me", "t-1")),
        (request_frame(Api.PRODUCE, 7, string(None)), Request(0, 7, 7, "me", "")),
        (request_frame(Api.PRODUCE, 10, b"\0\0"), Request(0, 10, 7, "me", "")),
        (request_frame(Api.PRODUCE, 12, b"\0\4t-1"), Request(0, 12, 7, "me", "t-1")),
        (request_frame(Api.PRODUCE, 2, b"\xff\xff"), Request(0, 2, 7, "me", "")),
        (request_frame(Api.INIT_PRODUCER_ID, 4, b"\0\4t-1"), Request(22, 4, 7, "me", "t-1")),
        (request_frame(Api.ADD_PARTITIONS_TO_TXN, 0, string("t-1")), Request(24, 0, 7, "me", "t-1")),
        (request_frame(Api.ADD_PARTITIONS_TO_TXN, 5, b"\0\2\4t-1"), Request(24, 5, 7, "me", "")),
        (request_frame(Api.API_VERSIONS, 3, client=None), Request(18, 3, 7, "")),
    ],
)  # fmt: skip
def test_a_request_names_its_api_its_client_and_its_transaction(frame: bytes, expected: Request) -> None:
    """Old and flexible versions, with and without a transaction."""
    assert parse_request(frame) == expected


def test_frames_are_cut_wherever_the_bytes_were_split() -> None:
    """A stream that comes byte by byte gives the same frames as one that comes whole."""
    frames = [request_frame(Api.FETCH, 12, b"x" * size) for size in (0, 1, 500)]
    stream = b"".join(frames)
    slow = FrameSplitter()

    assert FrameSplitter().feed(stream) == frames
    assert [frame for byte in stream for frame in slow.feed(bytes([byte]))] == frames


def test_other_protocols_are_refused() -> None:
    """The beginning of a TLS handshake is a length that no frame has."""
    with pytest.raises(FrameError, match="a frame of 369295616 bytes"):
        FrameSplitter().feed(b"\x16\x03\x01\x00")
    with pytest.raises(FrameError, match="a request of"):
        parse_request(framed(b"\0\x1a"))


@pytest.mark.parametrize(
    ("request_", "body", "error"),
    [
        (Request(Api.END_TXN, 1, 7), b"\0\0\0\0" + b"\0\x2f", 47),
        (Request(Api.END_TXN, 3, 7), b"\0" + b"\0\0\0\0" + b"\0\0" + b"\0", 0),
        (Request(Api.INIT_PRODUCER_ID, 4, 7), b"\0" + b"\0\0\0\0" + b"\0\x33", 51),
        (Request(Api.PRODUCE, 7, 7), struct.pack(">i", 1) + string("a") + struct.pack(">iih", 1, 0, 47), 47),
        (Request(Api.PRODUCE, 10, 7), b"\0\2\2a\2" + struct.pack(">ih", 0, 90), 90),
        (Request(Api.PRODUCE, 13, 7), b"\0\2" + bytes(16) + b"\2" + struct.pack(">ih", 0, 0), 0),
        (Request(Api.PRODUCE, 7, 7), struct.pack(">i", 0), None),
        (Request(Api.METADATA, 12, 7), b"\0\0\0\0", None),
        (Request(Api.END_TXN, 1, 7), b"\0", None),
    ],
)
def test_the_error_code_of_an_answer(request_: Request, body: bytes, error: int | None) -> None:
    """What tells a straggler that the broker took from one that it refused."""
    frame = framed(struct.pack(">i", 7) + body)

    assert correlation_id(frame) == 7
    assert answer_error(request_, frame) == error
    falsified = with_error(request_, frame, 120)
    if error is None:
        assert falsified is None
    else:
        assert falsified is not None
        assert answer_error(request_, falsified) == 120
        assert with_error(request_, falsified, error) == frame
