"""What the history of a state finds: changes that a master forgot, and delayed messages that came twice."""

import asyncio
from contextlib import suppress
from pathlib import Path

from sparrowmq.protocol.requests.admin_headers import DeleteTopic
from sparrowmq.protocol.requests.headers import UpdateConsumerOffset
from tests.broker.live import live_broker, send_request
from tests.crash.state_history import COMMITTED, DELAYED, StateHistory


async def test_what_is_forgotten_or_doubled_is_found(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:

        async def master() -> str:
            return live.broker.address

        history = StateHistory(master, seed=3)
        changing = asyncio.ensure_future(history.run())
        while history.acknowledged < 30 or not history.delayed or "offset-0" not in history.may_be:
            await asyncio.sleep(0.01)
        changing.cancel()
        with suppress(asyncio.CancelledError):
            await changing
        assert await history.wrong_state() == []

        body = next(iter(history.sent))
        for _ in range(2):
            await live.session.call(send_request(DELAYED), body)
        assert any(text.startswith("doubled") for text in await history.wrong_delays())

        topics = [name for name, values in history.may_be.items() if name.startswith("topic-") and None not in values]
        await live.session.call(DeleteTopic(topics[0]))
        other = 1 if 0 in history.may_be["offset-0"] else 0
        await live.session.call(UpdateConsumerOffset(COMMITTED, COMMITTED, 0, other))
        wrong = await history.wrong_state()
        assert [each.split()[1] for each in wrong] == ["offset-0", topics[0]]
