import pytest

from sparrowmq.console.send_dialog import properties_in


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        (" a = 1 , b=x=y", {"a": "1", "b": "x=y"}),
        ('{"a": "1, 2"}', {"a": "1, 2"}),
    ],
)
def test_properties_are_pairs_or_json(text, expected):
    assert properties_in(text) == expected


@pytest.mark.parametrize("text", ["a", "=1", "a=1,b", '{"a": 1}', "{"])
def test_what_is_neither_is_told(text):
    with pytest.raises(ValueError, match="propert"):
        properties_in(text)
