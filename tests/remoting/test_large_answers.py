"""Large answers, one after another."""

import asyncio
import time
from collections.abc import Awaitable

import pytest

from sparrowmq.loop.slices import SLICE_S
from sparrowmq.remoting.handler import Answer
from sparrowmq.remoting.large_answers import LargeAnswers
from tests.peers import Asker


@pytest.mark.guards(
    "LargeAnswers.make: self._line -> type(self._line)()",
    "_unless_gone: false peer.closed",
)
async def test_each_is_begun_when_the_one_before_it_is_complete_and_none_for_a_peer_that_has_gone():
    large = LargeAnswers()
    made: list[str] = []

    def steps(name):
        for _ in range(3):
            made.append(name)
            time.sleep(SLICE_S)
            yield
        return Answer()

    here, gone = Asker(), Asker()
    works = [large.make(peer, steps(name)) for name, peer in (("a", here), ("b", gone), ("c", here))]
    gone.closed = True
    await asyncio.gather(*(work for work in works if isinstance(work, Awaitable)))
    assert made == ["a"] * 3 + ["c"] * 3
