"""Tables of requests: arguments and answers of each form, and the numbers for C."""

from __future__ import annotations

import struct

import pytest

from tests.native.device import REQUESTS
from tilewright.native.requests import Request, header


def test_a_payload_becomes_words_and_bytes() -> None:
    assert Request("nothing").arguments(b"") == ()
    assert Request("add", "IQ").arguments(struct.pack("<IQ", 3, 1 << 40)) == (3, 1 << 40)
    length, text = Request("append", "H", data=True).arguments(b"\3\0abc")
    assert length == 3
    assert bytes(text) == b"abc"
    (text,) = Request("text", data=True).arguments(b"abc")
    assert bytes(text) == b"abc"


def test_a_payload_of_another_size_is_refused() -> None:
    for payload in (bytes(3), bytes(5)):
        with pytest.raises(struct.error):
            Request("add", "I").arguments(payload)
    with pytest.raises(struct.error):
        Request("append", "H", data=True).arguments(b"1")


def test_an_answer_is_words_or_bytes() -> None:
    assert Request("total", gives="Q").answer(5) == struct.pack("<Q", 5)
    assert Request("both", gives="IQ").answer((5, 6)) == struct.pack("<IQ", 5, 6)
    assert Request("text").answer(b"abc") == b"abc"
    kept = bytearray(b"abc")
    assert Request("text").answer(kept) is kept  # results may be large
    assert Request("reset").answer(None) == b""


def test_c_counts_the_requests_from_zero() -> None:
    lines = header(REQUESTS).splitlines()
    assert lines[0].startswith("/*") and lines[0].endswith("do not edit. */")
    assert lines[1:] == ["enum { RESET, ADD, TOTAL, BOTH, APPEND, TEXT, REFUSE };"]
