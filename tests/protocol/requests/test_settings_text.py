"""Properties text: what Java writes, and Java's escape rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.requests import settings_text as properties_text

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def test_plain_settings_are_written_as_java_writes_them() -> None:
    settings = {
        "brokerName": "broker-a",
        "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
        "empty": "",
        "x": "a=b #!",
    }
    expected = b"brokerName=broker-a\nnamesrvAddr=10.0.0.1:9876;10.0.0.2:9876\nempty=\nx=a=b #!\n"
    assert properties_text.render(settings) == expected
    assert properties_text.parse(expected) == settings


@given(st.dictionaries(TEXT, TEXT))
def test_what_was_written_is_read_back(settings: dict[str, str]) -> None:
    text = properties_text.render(settings)
    assert text.isascii()
    assert properties_text.parse(text) == settings


@pytest.mark.parametrize(
    ("raw", "settings"),
    [
        ("# comment\n! another\n\na : b\n", {"a": "b"}),
        ("path=C:\\\\store\\\n  /more", {"path": "C:\\store/more"}),
        ("a=\\u4e16\\t", {"a": "世\t"}),
        ("名=值", {"名": "值"}),
        ("a=1\r\na=2", {"a": "2"}),
    ],
)
def test_the_escape_rules_of_java(raw: str, settings: dict[str, str]) -> None:
    assert properties_text.parse(raw.encode()) == settings


def test_a_broken_escape_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="broken escape"):
        properties_text.parse(b"a=\\u12x")


def test_settings_in_a_request_have_a_limit() -> None:
    assert properties_text.of_request(b"a=1\n" * 700) == {"a": "1"}
    with pytest.raises(RemoteProtocolError, match="take 8000 bytes, and one request may have 3072"):
        properties_text.of_request(b"a=1\n" * 2000)
