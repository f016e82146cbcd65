import pytest

from sparrowmq.console.message_body import (
    BEGINNING,
    MAX_JSON_BYTES,
    MAX_SHOWN_BYTES,
    JsonPath,
    body_text,
    form_of,
    hex_of,
    one_line,
)
from sparrowmq.core.safe_text import printable_text

BODY = b'{"order": {"price": 12.5, "a b": null, "items": [{"sku": "x-1"}, {"sku": "x-2"}]}, "paid": true}'


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b'{"a": 1}', "json"),
        (b" [1]", "json"),
        (b"{nonsense", "text"),
        (b"1", "text"),
        (b"", "text"),
        (b"\x00", "hex"),
        ("Grüße 世界".encode(), "text"),
        ("Grüße".encode("latin-1"), "hex"),
        ("<b>\u202e".encode(), "hex"),
    ],
)
def test_a_body_is_shown_as_what_it_is(body, form):
    assert form_of(body) == form


def test_json_is_laid_out_text_is_as_it_is_and_anything_has_digits():
    assert body_text(b'{"a":[1]}', "json") == '{\n  "a": [\n    1\n  ]\n}'
    assert body_text(b"{nonsense", "json") == "{nonsense"
    assert body_text(b"a\nb", "text") == "a\nb"
    assert body_text(b"\xff", "text") == body_text(b"\xff", "hex") == hex_of(b"\xff")
    assert hex_of(b"SparrowMQ <b>\x00\xff..x") == (
        "000000  53 70 61 72 72 6f 77 4d 51 20 3c 62 3e 00 ff 2e  SparrowMQ <b>...\n"
        "000010  2e 78                                            .x"
    )


def test_of_a_very_long_body_the_beginning_is_shown():
    told = body_text(b"x" * (MAX_SHOWN_BYTES + 5), "text")
    assert told.startswith("xxx") and told.endswith("… 5 bytes more")


@pytest.mark.parametrize("depth", [30, 900])
def test_json_that_grows_a_thousandfold_as_it_is_laid_out_is_shown_as_it_is(depth):
    body = b"[" * depth + b"1," * 60_000 + b"1" + b"]" * depth
    assert body_text(body, "json") == body.decode()
    assert body_text(b"[" * 3 + b"1" + b"]" * 3, "json").count("\n") == 6


def test_a_very_long_body_is_not_read_as_json():
    body = b'{"a": "%s"}' % (b"x" * MAX_JSON_BYTES)
    assert form_of(body) == "text" and body_text(body, "json") == body.decode()
    assert not JsonPath.parse("a").fits(body)
    assert form_of("世".encode() * MAX_SHOWN_BYTES) == "text", "no character is cut"


def test_the_beginning_of_a_body_is_enough_for_its_line():
    for body in (b"x" * 1000, "世".encode() * 1000, b"\0" * 1000):
        assert one_line(body) == one_line(body[:BEGINNING])
    assert one_line(b"\0" * 1000).startswith("over 480 bytes 00")


def test_a_table_has_one_short_line_of_it():
    assert one_line(b"a\n  b") == "a b"
    assert one_line(b"x" * 1000) == "x" * 119 + "…"
    assert one_line("世".encode() * 1000).endswith("世…"), "no character is cut"
    assert one_line(b"\x00\x01") == "2 bytes 00 01"
    assert printable_text(b"\xe4\xb8") is None


@pytest.mark.parametrize(
    "path",
    [
        "$.order.price",
        "order.price > 12",
        "$.order.price >= 12.5",
        "order.items[1].sku == x-2",
        '$.order["a b"]',
        "order.items[0].sku ~ x",
        "paid == true",
        'order["a b"] == null',
        "order.price != 13",
        '$.paid != "true"',
    ],
)
def test_a_path_that_fits(path):
    assert JsonPath.parse(path).fits(BODY)


@pytest.mark.parametrize(
    "path",
    [
        "$.nothing",
        "order.price > 13",
        "order.items[2].sku",
        "order.price.deeper",
        "order.price > x",
        "paid == 1",
        "order.items[0].sku == x-2",
        "order.items ~ 1",
    ],
)
def test_a_path_that_does_not(path):
    assert not JsonPath.parse(path).fits(BODY)
    assert not JsonPath.parse(path).fits(b"\xff no json")


@pytest.mark.parametrize("path", ["", "$", "> 5", "a >", "a b", "a[x]", "a == "])
def test_what_is_no_path_is_told(path):
    with pytest.raises(ValueError, match="JSON path"):
        JsonPath.parse(path)
