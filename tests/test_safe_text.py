"""Words of others in our log and errors."""

import pytest

from sparrowmq.safe_text import shown


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("10.0.0.1@4711", "10.0.0.1@4711"),
        ("", ""),
        ("航班", "航班"),
        ("a b", "a b"),
        ("C:\\logs", "C:\\logs"),
        ("me\n2026-01-01 INFO all is well", "me\\n2026-01-01 INFO all is well"),
        ("a\rb\tc\x1b[2Jd\0", "a\\rb\\tc\\x1b[2Jd\\x00"),
        ("a\\n\n", "a\\\\n\\n"),
        ("a\u2028b\u202ec\ud800", "a\\u2028b\\u202ec\\ud800"),
        (17, "17"),
    ],
)
def test_what_does_not_print_is_escaped(words, expected):
    assert shown(words) == expected


def test_what_is_too_long_is_cut_and_counted():
    assert shown("x" * 1_000_000) == "x" * 200 + "... (1000000 characters)"
    assert shown("\n" * 300) == "\\n" * 100 + "... (300 characters)"
    assert shown("x" * 200) == "x" * 200
    assert shown("x" * 20, 10) == "x" * 10 + "... (20 characters)"
