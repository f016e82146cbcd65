from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq.console.layout.tables import (
    Amount,
    Badge,
    Column,
    Details,
    Folding,
    Order,
    Sparkline,
    Table,
    filter_names,
    link,
    pair_columns,
)
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
    assert filter_names(["orders", "Orders-eu", "payments"], wanted) == expected


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
        (Amount(1500, "1.5 kB"), "1.5 kB"),
    ],
)
async def test_cells_are_values_and_no_html(cell, shown):
    with page():
        table = Table(seen(prefix="/mq"), [Column("It", lambda row: row)], [cell])
    assert table.element.rows == [{"id": 0, "column-0": shown}]


async def test_a_long_text_is_sent_as_a_whole_only_where_it_is_shown_so():
    """A producer chooses keys and tags, and a page of messages has many rows."""
    cells = ["k" * 32_000, link("g" * 501, "groups"), Badge("b" * 500, "red-9")]
    with page():
        cut, whole = (
            Table(seen(prefix="/mq"), [Column("It", lambda row: row)], cells, wraps=wraps) for wraps in (False, True)
        )
    first, second, third = (row["column-0"] for row in cut.element.rows)
    assert (first, second["text"], third["text"]) == ("k" * 500 + "…", "g" * 500 + "…", "b" * 500)
    assert whole.element.rows[0]["column-0"] == cells[0]


async def test_rows_are_replaced_and_columns_of_one_label_stay_apart():
    with page():
        table = Table(
            seen(), [*pair_columns("It", "It"), Column("Count", len, is_number=True, is_wide=True)], [("a", "b")]
        )
        table.show([("c", "d")], "none there")
    assert table.element.rows == [{"id": 0, "column-0": "c", "column-1": "d", "column-2": "2"}]
    assert table.element.props["no-data-label"] == "none there"
    assert [each["align"] for each in table.element.columns] == ["left", "left", "right"]
    assert table.element.columns[2]["classes"] == "max-sm:hidden"


COLUMN: Column[Any] = Column("It", lambda row: row)
SAME: Column[Any] = Column("Same", lambda row: 1)


@pytest.mark.parametrize(
    "cells",
    [
        [2, 10, 300.5, None],
        [Amount(900, "900 B"), Amount(1500, "1.5 kB"), Amount(2e6, "2.0 MB"), ""],
        ["a", "B", link("c", "x"), Badge("D", "red"), None],
        [7, "unknown", None],
        [datetime(2026, 1, 2), datetime(2026, 1, 10), None],
    ],
)
def test_rows_are_sorted_by_values_and_those_without_one_come_last(cells):
    mixed = cells[::-1]
    assert Order("It").sort([SAME, COLUMN], mixed) == cells
    assert Order("It", is_descending=True).sort([SAME, COLUMN], mixed) == [*cells[-2::-1], cells[-1]]
    assert Order("none").sort([COLUMN], mixed) == mixed


def test_numbers_are_sorted_from_the_greatest_first_and_a_second_click_turns_the_order():
    number = Column("Lag", lambda row: row, is_number=True)
    assert Order().after_click(COLUMN) == Order("It")
    assert Order().after_click(number) == Order("Lag", True)
    assert Order("Lag", True).after_click(number) == Order("Lag")
    assert Order("It").after_click(number) == Order("Lag", True)


async def test_a_row_stays_unfolded_where_others_come_before_it():
    folding: Folding[Any] = Folding(lambda row: Details(f"all of {row}", {"id": row}, link("Open", "x", row)), str)
    with page():
        table = Table(seen(), [COLUMN], ["a", "b"], folding=folding, may_tick=True)
        table._on_fold_event(SimpleNamespace(args="b"))
        table._on_fold_event(SimpleNamespace(args="nobody's row"))
        table.show(["c", "b"])
        table.element.selected = [{"id": "b"}]
    details = {"text": "all of b", "copied": ["id"], "href": "/x/b", "more": "Open"}
    assert [row.get("details") for row in table.element.rows] == [None, details]
    assert table._unfolded == {"b"} and table.selected() == ["b"]


async def test_a_click_on_a_heading_sorts_the_rows_and_those_that_come_later():
    with page():
        table = Table(seen(), [COLUMN, Column("Fixed", str, is_sorted=False)], ["b", "a"])
        await table._on_order_event(SimpleNamespace(args="column-0"))
        await table._on_order_event(SimpleNamespace(args="column-1"))
        assert [row["column-0"] for row in table.element.rows] == ["a", "b"]
        table.show(["d", "c"])
    assert [row["column-0"] for row in table.element.rows] == ["c", "d"]
    assert [each["order"] for each in table.element.columns] == ["ascending", None]
