from typing import Any

from nicegui import context, ui

from sparrowmq.console.layout.page import ROWS_PER_PAGE, Boxes, ListPage
from sparrowmq.console.layout.tables import Column
from tests.console.layout.seeing import page, seen

BOXES = Boxes("kinds", {"topic": "Topics", "dlq": "Dead letters"}, "topic")


def test_the_address_ticks_boxes_that_exist():
    assert BOXES.ticked_in(seen()) == ["topic"]
    assert BOXES.ticked_in(seen(query="kinds=dlq,topic,none")) == ["dlq", "topic"]
    assert BOXES.ticked_in(seen(query="kinds=")) == []


async def test_rows_are_made_for_one_page_of_the_names_that_match():
    asked = []

    async def read(view, ticked):
        return {f"topic-{number:03}": number for number in range(200)}

    async def rows(view, found):
        asked.append(found)
        return list(found)

    with page():
        await ListPage([Column("Name", str)], read, rows, "none", BOXES)(seen(query="page=2&filter=topic"))
    assert asked == [{f"topic-{number:03}": number for number in range(ROWS_PER_PAGE, 2 * ROWS_PER_PAGE)}]


async def test_a_list_is_sorted_as_a_whole():
    async def read(view, ticked):
        return {f"topic-{number:03}": number for number in range(200)}

    async def rows(view, found):
        return list(found.items())

    columns: list[Column[Any]] = [
        Column("Name", lambda row: row[0]),
        Column("Count", lambda row: row[1], is_number=True),
    ]
    with page():
        await ListPage(columns, read, rows, "none")(seen(query="sort=Count&order=down&page=2"))
        table = next(each for each in context.client.content.descendants() if isinstance(each, ui.table))
    assert [row["column-1"] for row in table.rows] == [str(199 - at) for at in range(ROWS_PER_PAGE, 2 * ROWS_PER_PAGE)]
