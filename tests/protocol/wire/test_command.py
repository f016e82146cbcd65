"""What a command says of itself."""

from sparrowmq.protocol.wire.codec import decode
from sparrowmq.protocol.wire.command import language_name


def test_language_ordinals_have_names() -> None:
    assert language_name(decode(0, b'{"code":1,"language":1}', b"").language) == "CPP"
    assert language_name(decode(0, b'{"code":1,"language":99}', b"").language) == "OTHER"
    assert language_name(decode(0, b'{"code":1}', b"").language) == "OTHER"


def test_a_language_that_nobody_knows_is_not_kept() -> None:
    assert language_name("RUST") == "RUST"
    assert language_name("x" * 200_000) == "OTHER"


def test_the_log_form_is_short_and_safe() -> None:
    command = decode(0, b'{"code":1,"opaque":2,"remark":"' + b"x" * 5000 + b'"}', b"\0" * 9)
    assert len(str(command)) < 150
    assert "body=9 bytes" in str(command)
