from typing import Any

from nicegui import context

from sparrowmq.console.layout.page import Description, Page, table_part, text_part
from sparrowmq.console.layout.tables import Column
from tests.console.layout.seeing import page, seen

PARTS: list[Any] = [
    text_part(lambda found: f"{len(found)} rows"),
    table_part("Rows", [Column("It", str)], lambda found: found),
]


async def test_parts_are_drawn_from_one_read():
    async def read(view):
        return ["a", "b"]

    with page():
        await Page("/x", "X", Description(read, PARTS)).draw(seen())
        line, _, table = _drawn()
    assert line.text == "2 rows"
    assert [row["column-0"] for row in table.rows] == ["a", "b"]


async def test_parts_show_newer_values_in_place():
    with page():
        updates = [part(seen(), ["a"]) for part in PARTS]
        line, _, table = _drawn()
        for update in updates:
            update(["a", "b"])
    assert line.text == "2 rows"
    assert [row["column-0"] for row in table.rows] == ["a", "b"]


async def test_a_page_that_reads_again_may_do_so_at_less_cost():
    async def read(view):
        return 1

    async def refresh(view, found):
        return found + 1

    repeated: list[Any] = []
    shown: list[int] = []
    view: Any = seen()
    view.every = lambda seconds, work: repeated.append((seconds, work))
    with page():
        await Description(read, [lambda view, found: shown.append], 5.0, refresh)(view)
        ((seconds, again),) = repeated
        await again()
    assert (seconds, shown) == (5.0, [2])


def _drawn() -> list[Any]:
    """The elements of the page, in their order."""
    return list(context.client.content.descendants())
