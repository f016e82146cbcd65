"""What a command says of itself."""

from sparrowmq.protocol.wire.codec import decode


def test_language_ordinals_have_names() -> None:
    assert decode(0, b'{"code":1,"language":1}', b"").language_name == "CPP"
    assert decode(0, b'{"code":1,"language":99}', b"").language_name == "OTHER"
    assert decode(0, b'{"code":1}', b"").language_name == "OTHER"


def test_the_log_form_is_short_and_safe() -> None:
    command = decode(0, b'{"code":1,"opaque":2,"remark":"' + b"x" * 5000 + b'"}', b"\0" * 9)
    assert len(str(command)) < 150
    assert "body=9 bytes" in str(command)
