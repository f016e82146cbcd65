import pytest

from sparrowmq.console.layout.listing import badge, chosen, link, sparkline


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("", ["orders", "Orders-eu", "payments"]),
        ("ORD", ["orders", "Orders-eu"]),
        ("eu ord", ["Orders-eu"]),
        ("none", []),
    ],
)
def test_a_filter_wants_all_its_words_in_any_case(wanted, expected):
    assert chosen(["orders", "Orders-eu", "payments"], wanted) == expected


def test_a_sparkline_spans_its_box_and_needs_two_points():
    assert sparkline([]) == sparkline([5]) == ""
    assert sparkline([0, 10]) == {"points": "0.0,23.0 120.0,1.0"}
    assert sparkline([0, 0]) == {"points": "0.0,23.0 120.0,23.0"}


def test_cells_are_values_and_no_html():
    assert link("<b>", "/topics/x") == {"text": "<b>", "href": "/topics/x"}
    assert badge("up", "green") == {"text": "up", "color": "green"}
