"""A page of metrics that many ask for at once, or one again and again."""

import asyncio

import pytest

from sparrowmq.errors import StoreError
from sparrowmq.metrics.http_endpoint import Answer
from sparrowmq.metrics.metrics_port import SharedPage


class Pages:
    """Makes numbered pages, each in some time."""

    def __init__(self, each_s: float) -> None:
        self.count = 0
        self._each_s = each_s

    async def make(self) -> Answer:
        self.count += 1
        number = self.count
        await asyncio.sleep(self._each_s)
        if number == 2:
            raise StoreError("it is damaged")
        return Answer(200, b"%d" % number)


async def test_who_asks_while_a_page_is_made_shares_the_next_one():
    pages = Pages(0.01)
    pages.count = 2
    shared = SharedPage(pages.make)
    first = asyncio.create_task(shared.get())
    while pages.count == 2:
        await asyncio.sleep(0)
    others = await asyncio.gather(*(shared.get() for _ in range(20)))
    assert (await first).body == b"3" and {each.body for each in others} == {b"4"}


async def test_one_who_asks_again_and_again_gets_a_fifth_of_the_time():
    pages = Pages(0.02)
    pages.count = 2
    shared, loop = SharedPage(pages.make), asyncio.get_running_loop()
    end_s = loop.time() + 0.5
    while loop.time() < end_s:
        await shared.get()
    assert 1 <= pages.count - 2 <= 6


async def test_a_page_that_cannot_be_made_keeps_no_other_from_being_made():
    shared = SharedPage(Pages(0).make)
    assert (await shared.get()).body == b"1"
    with pytest.raises(StoreError):
        await shared.get()
    assert (await shared.get()).body == b"3"
