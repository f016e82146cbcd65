"""The Java string hash, of texts and of ASCII in bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel.cursor import In
from sparrowmq.kernel.string_hash import string_hash

# The values that java.lang.String.hashCode gives.
JAVA_HASHES = [
    ("", 0),
    ("a", 97),
    ("TagA", 2598919),
    ("Aa", 2112),
    ("BB", 2112),
    ("hello", 99162322),
    ("polygenelubricants", -2147483648),
    ("标签", 857175),
    ("😀", 1772899),
    ("Orders#order-7", -122581510),
]


def hash_unit_by_unit(text: str) -> int:
    raw, total = text.encode("utf-16-be", "surrogatepass"), 0
    for position in range(0, len(raw), 2):
        total = (31 * total + int.from_bytes(raw[position : position + 2], "big")) & 0xFFFFFFFF
    return total - (1 << 32) if total >= 1 << 31 else total


@pytest.mark.parametrize(("text", "code"), JAVA_HASHES)
def test_the_hash_is_that_of_java(text: str, code: int) -> None:
    assert string_hash(text) == code


@given(st.text(st.characters(exclude_categories=[])) | st.text("ab", min_size=250, max_size=1100))
def test_the_hash_runs_over_utf16_units_of_any_length(text: str) -> None:
    assert string_hash(text) == hash_unit_by_unit(text)


@given(st.text(st.characters(max_codepoint=0x7F)))
def test_the_hash_of_ascii_in_bytes_is_that_of_the_text(text: str) -> None:
    assert In(b"#" + text.encode() + b"#").hash31(1, 1 + len(text), 0) == string_hash(text)


def test_no_byte_beyond_the_end_is_read() -> None:
    with pytest.raises(IndexError):
        In(b"Tag").hash31(0, 4, 0)
