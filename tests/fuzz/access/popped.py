"""A message that the owner has popped at the broker's own port, and the judge of it."""

from __future__ import annotations

from typing import Final

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.requests.pop_headers import PopMessageReply
from sparrowmq.remoting.request_in_flight import Response
from tests.broker.pop_live import FOUND_OR_NOT, change, messages, pop_request
from tests.fuzz.access.victim import MARKER, Victim

_HELD_MS: Final = 600_000


class Popped:
    """A message of topic `jobs`, popped by group `poppers`, new in each round."""

    def __init__(self, victim: Victim) -> None:
        self._victim = victim
        self._message: StoredMessage | None = None

    async def prepare(self) -> None:
        """Send the message of a round, and pop it."""
        body = b"job %d" % self._victim.round
        self._victim.shown.add(b"%s %s" % (MARKER, body))
        await self._victim.send("jobs", body, {})
        [self._message] = await self._pop()
        self._victim.targets["popped"] = {
            "topic": "jobs", "group": "poppers", "consumer_group": "poppers", "queue_id": 0,
            "extra_info": self._message.properties["POP_CK"], "offset": self._message.queue_offset,
        }  # fmt: skip

    async def judge(self) -> list[str]:
        """The attacks on the message: it is still invisible, and its handle still counts."""
        assert self._message is not None
        faults = [f"{bytes(message.body)!r} is visible" for message in await self._pop()]
        # An acknowledgement would also be accepted if the message were acknowledged already.
        answer = await self._victim.main.ask(change(self._message, _HELD_MS), accept=(0, ResponseCode.NO_MESSAGE))
        return faults + ([f"its handle is refused: {answer.remark}"] if answer.code else [])

    async def _pop(self) -> list[StoredMessage]:
        request = pop_request(topic="jobs", invisible_time=_HELD_MS)
        answer = await self._victim.main.ask(request, accept=(0, *FOUND_OR_NOT))
        return messages(Response(answer.code, answer.header(PopMessageReply), "", answer.body, 0))
