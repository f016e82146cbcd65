from datetime import datetime

import pytest

from sparrowmq.console.layout.tables import Badge, Column, Sparkline, Table, chosen, link, pairs
from tests.console.layout.seeing import page, seen


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("", ["orders", "Orders-eu", "payments"]),
        ("ORD", ["orders", "Orders-eu"]),
        ("eu ord", ["Orders-eu"]),
        ("none", []),
    ],
)
def test_a_filter_matches_names_that_contain_all_its_words_in_any_case(wanted, expected):
    assert chosen(["orders", "Orders-eu", "payments"], wanted) == expected


def test_a_sparkline_spans_its_box_and_needs_two_points():
    assert Sparkline([]).points() == Sparkline([5]).points() == ""
    assert Sparkline([0, 10]).points() == "0.0,23.0 120.0,1.0"
    assert Sparkline([0, 0]).points() == "0.0,23.0 120.0,23.0"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, ""),
        ("<b>", "<b>"),
        (12_345, "12,345"),
        (1234.56, "1,234.6"),
        (True, "yes"),
        (False, "no"),
        (datetime(2026, 11, 20, 8, 1, 2), "2026-11-20 08:01:02"),
        (link("<b>", "topics", "x", page=2), {"text": "<b>", "href": "/mq/topics/x?page=2"}),
        (Badge("up", "green"), {"text": "up", "color": "green"}),
        (Sparkline([1]), ""),
    ],
)
async def test_cells_are_values_and_no_html(cell, shown):
    with page():
        table = Table(seen(prefix="/mq"), [Column("It", lambda row: row)], [cell])
    assert table.element.rows == [{"id": 0, "column-0": shown}]


async def test_rows_are_replaced_and_columns_of_one_label_stay_apart():
    with page():
        table = Table(
            seen(), [*pairs("It", "It"), Column("Count", len, is_number=True, is_wide=True)], [("a", "b")]
        )
        table.show([("c", "d")], "none there")
    assert table.element.rows == [{"id": 0, "column-0": "c", "column-1": "d", "column-2": "2"}]
    assert table.element.props["no-data-label"] == "none there"
    assert [each["align"] for each in table.element.columns] == ["left", "left", "right"]
    assert table.element.columns[2]["classes"] == "max-sm:hidden"
