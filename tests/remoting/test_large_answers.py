"""Large answers, one after another."""

import asyncio
import time
from collections.abc import Awaitable
from functools import partial

from sparrowmq.loop.slices import SLICE_S
from sparrowmq.remoting.handler import LargeAnswers, Reply
from tests.peers import Asker


async def test_each_is_begun_when_the_one_before_it_is_complete_and_none_for_a_peer_that_has_gone():
    large = LargeAnswers()
    made: list[str] = []

    def steps(name):
        for _ in range(3):
            made.append(name)
            time.sleep(SLICE_S)
            yield
        return Reply()

    here, gone = Asker(), Asker()
    works = [large.make(peer, partial(steps, name)) for name, peer in (("a", here), ("b", gone), ("c", here))]
    gone.closed = True
    await asyncio.gather(*(work for work in works if isinstance(work, Awaitable)))
    assert made == ["a"] * 3 + ["c"] * 3


async def test_a_peer_that_asks_for_many_delays_another_one_by_one():
    large = LargeAnswers()
    made: list[str] = []

    def steps(name):
        made.append(name)
        for _ in range(2):
            time.sleep(SLICE_S)
            yield
        return Reply()

    def begin(name, peer):
        work = large.make(peer, partial(steps, name))
        assert isinstance(work, Awaitable)
        return asyncio.ensure_future(work)

    many, one = Asker(), Asker()
    works = [begin("first", many)]
    await asyncio.sleep(0)
    works += [begin("many", many) for _ in range(4)]
    await asyncio.sleep(0)
    works += [begin("one", one) for _ in range(2)]
    await asyncio.sleep(0)
    made.clear()  # of the attempts to make each at once
    await asyncio.gather(*works)
    assert made == ["many", "one", "many", "one", "many", "many"]


async def test_a_short_one_is_made_while_a_large_one_is_being_made():
    large = LargeAnswers()

    def long(order):
        order.append("begun")
        for _ in range(3):
            time.sleep(SLICE_S)
            yield
        return Reply(body=b"long")

    def short():
        yield
        return Reply(body=b"short")

    first: list[str] = []
    second: list[str] = []
    works = [large.make(Asker(), partial(long, order)) for order in (first, second)]
    await asyncio.sleep(0)
    answer = large.make(Asker(), short)
    assert isinstance(answer, Reply) and answer.body == b"short"
    answers = await asyncio.gather(*(work for work in works if isinstance(work, Awaitable)))
    assert [each.body for each in answers] == [b"long", b"long"]
    assert (first, second) == (["begun"], ["begun"])
