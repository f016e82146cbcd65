"""Changes of topics, groups and offsets beside failovers, and delayed messages: nothing acknowledged may be forgotten.

Each object has the values that it may have. An acknowledged change leaves one of them; a change without an answer, or
with an error, adds one, because it may be in effect or not. Delayed messages have a body each, which must be in the log
once, if the send was acknowledged, and at most once if not.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.requests.admin_headers import (
    DeleteTopic,
    GetAllSubscriptionGroup,
    GetAllTopicConfig,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
)
from sparrowmq.protocol.requests.bodies import GroupConfig, GroupConfigTable, TopicConfigTable
from sparrowmq.protocol.requests.headers import (
    PullMessage,
    QueryConsumerOffset,
    SendMessageV2,
    UpdateConsumerOffset,
)
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session

DELAYED: Final = "delayed"
COMMITTED: Final = "committed"
_OBJECTS: Final = 20  # topics, groups, and queues of offsets
_QUEUES: Final = 4
_ANSWER_S: Final = 5.0
_PAUSE_S: Final = 0.02
_DELAY: Final = "DELAY\x011\x02UNIQ_KEY\x01{}\x02"  # one second
_GONE: Final = None

Value = int | None


class StateHistory:
    """Changes the state of a master until cancelled, and compares it afterwards.

    Args:
        master: the address of the master, as long as it takes to find one.
    Attributes:
        acknowledged: the number of changes that were answered with success.
        may_be: the values that each object may have, by name.
        sent: the bodies of delayed messages, and whether each was acknowledged.
    """

    def __init__(self, master: Callable[[], Awaitable[str]], seed: int) -> None:
        self.acknowledged = 0
        self._master = master
        self._random = random.Random(seed)
        self.may_be: dict[str, set[Value]] = {}
        self.sent: dict[bytes, bool] = {}

    @property
    def delayed(self) -> int:
        """The number of acknowledged delayed messages."""
        return sum(self.sent.values())

    async def run(self) -> None:
        """Change one object after the other."""
        pool = Pool(SystemClock())
        try:
            while True:
                try:
                    session = await pool.session(await self._master())
                    while True:
                        await self._change_one(session)
                        await asyncio.sleep(_PAUSE_S)
                except SparrowError:
                    await asyncio.sleep(5 * _PAUSE_S)
        finally:
            pool.close()

    async def wrong_state(self) -> list[str]:
        """What the master forgot of topics, groups and offsets."""
        return await self._asked(self._wrong_state)

    async def wrong_delays(self) -> list[str]:
        """The delayed messages that are missing or doubled. All must be due."""
        return await self._asked(self._wrong_delays)

    async def _asked(self, compare: Callable[[Session], Awaitable[list[str]]]) -> list[str]:
        pool = Pool(SystemClock())
        try:
            return await compare(await pool.session(await self._master()))
        finally:
            pool.close()

    # Changes --------------------------------------------------------------------------------------------------------

    async def _change_one(self, session: Session) -> None:
        number, roll = self._random.randrange(_OBJECTS), self._random.random()
        if roll < 0.4:
            await self._change_topic(session, f"topic-{number}")
        elif roll < 0.6:
            await self._change_group(session, f"group-{number}")
        elif roll < 0.8:
            await self._commit(session, number % _QUEUES)
        else:
            await self._delay(session)

    async def _change_topic(self, session: Session, name: str) -> None:
        """Create the topic, make it wider, or delete it. It never gets fewer queues, for which other rules hold."""
        known = {value for value in self.may_be.get(name, {_GONE}) if value is not _GONE}
        if known and self._random.random() < 0.2:
            await self._tried(name, _GONE, session.call(DeleteTopic(name), timeout_s=_ANSWER_S))
            return
        queues = max(known, default=0) + self._random.randrange(1, 4)
        header = UpdateAndCreateTopic(name, queues, queues, 6, "TBW102", "SINGLE_TAG", 0)
        await self._tried(name, queues, session.call(header, timeout_s=_ANSWER_S))

    async def _change_group(self, session: Session, name: str) -> None:
        times = self._random.randrange(1, 1000)
        body = GroupConfig(group_name=name, retry_max_times=times).encode()
        call = session.call(UpdateAndCreateSubscriptionGroup(), body, timeout_s=_ANSWER_S)
        await self._tried(name, times, call)

    async def _commit(self, session: Session, queue_id: int) -> None:
        """Store a message, and commit an offset up to it: a master lowers offsets that are behind a queue's end."""
        header = SendMessageV2("makes", COMMITTED, "TBW102", _QUEUES, queue_id, 0, 0, 0, "", 0, False, 0)
        stored = await session.call(header, b"committed", timeout_s=_ANSWER_S)
        offset = self._random.randint(0, stored.header.queue_offset + 1)
        commit = UpdateConsumerOffset(COMMITTED, COMMITTED, queue_id, offset)
        await self._tried(f"offset-{queue_id}", offset, session.call(commit, timeout_s=_ANSWER_S))

    async def _tried(self, name: str, value: Value, call: Awaitable[object]) -> None:
        self.may_be.setdefault(name, {_GONE}).add(value)
        await call
        self.may_be[name] = {value}
        self.acknowledged += 1

    async def _delay(self, session: Session) -> None:
        body = self._random.randbytes(16).hex().encode()
        self.sent[body] = False
        header = SendMessageV2(
            "makes", DELAYED, "TBW102", 4, 0, 0, 0, 0, _DELAY.format(body.decode().upper()), 0, False, 0
        )
        await session.call(header, body, timeout_s=_ANSWER_S)
        self.sent[body] = True

    # Comparison -----------------------------------------------------------------------------------------------------

    async def _wrong_state(self, session: Session) -> list[str]:
        answer = await session.call(GetAllTopicConfig(), timeout_s=_ANSWER_S)
        topics = TopicConfigTable.decode(answer.body).topic_config_table
        answer_of_groups = await session.call(GetAllSubscriptionGroup(), timeout_s=_ANSWER_S)
        groups = GroupConfigTable.decode(answer_of_groups.body).subscription_group_table
        wrong = []
        for name, may_be in sorted(self.may_be.items()):
            value: Value
            if name in topics or name.startswith("topic-"):
                value = topics[name].write_queue_nums if name in topics else _GONE
            elif name.startswith("group-"):
                value = groups[name].retry_max_times if name in groups else _GONE
            else:
                value = await _committed(session, int(name.removeprefix("offset-")))
            if value not in may_be:
                wrong.append(f"lost: {name} is {value}, and may be {sorted(may_be, key=str)}")
        return wrong

    async def _wrong_delays(self, session: Session) -> list[str]:
        bodies, wrong = await _bodies(session), []
        for body, is_acknowledged in self.sent.items():
            if is_acknowledged and not bodies[body]:
                wrong.append(f"lost: the delayed message {body!r} was not delivered")
            if bodies[body] > 1:
                wrong.append(f"doubled: the delayed message {body!r} was delivered {bodies[body]} times")
        return wrong


async def _committed(session: Session, queue_id: int) -> Value:
    header = QueryConsumerOffset(COMMITTED, COMMITTED, queue_id, False)
    try:
        return (await session.call(header, timeout_s=_ANSWER_S)).header.offset
    except RemoteError:
        return _GONE


async def _bodies(session: Session) -> Counter[bytes]:
    """The bodies of all delivered messages."""
    found: Counter[bytes] = Counter()
    for queue_id in range(4):
        offset = 0
        while True:
            header = PullMessage(
                *("looks", DELAYED, queue_id, offset, 4096, 4, 0, 0, 0),
                subscription="*",
                max_msg_bytes=1 << 20,
            )
            try:
                response = await session.call(header, timeout_s=_ANSWER_S, accept={19, 20, 21})
            except RemoteError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                return found
            if response.code:
                break
            stored = [record.decode(each) for each in record.walk(response.body)]
            found.update(each.body for each in stored)
            offset = stored[-1].queue_offset + 1
    return found
