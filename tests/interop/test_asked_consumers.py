"""Apache's admin tool asks and moves consumers through our broker, our client's and Java's, and ours through Apache's.

mqadmin ── 307, 309 ──> broker ──> the consumer ──> its answer goes the same way back
mqadmin ── 222 ───────> broker ── 220 ──> the consumer goes on elsewhere
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import sparrowmq.sync
from sparrowmq import ReceivedMessage
from tests.interop.apache import mqadmin
from tests.interop.clients import JavaClient
from tests.interop.our_client import JAVA_SERVERS, until
from tests.interop.servers import OURS, Target
from tests.interop.test_mqadmin import Admin

pytestmark = pytest.mark.slow

LIMIT_S = 60.0  # Java's consumers stop a moved queue for ten seconds


@pytest.fixture(scope="module")
def admin() -> Iterator[Admin]:
    with Admin() as started:
        yield started


def wait_until(holds: Callable[[], bool], complaint: Callable[[], object]) -> None:
    """Return once it holds."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.02)


@contextmanager
def consuming(kind: str, target: Target, group: str, topic: str) -> Iterator[Callable[[], Counter[str]]]:
    """A consumer of this kind; yields what tells how often it was given each body."""
    if kind != "ours":
        with JavaClient(kind, target.namesrv) as java, java.consume(group, topic) as consumer:
            yield lambda: Counter(consumer.bodies())
        return
    seen: Counter[str] = Counter()

    def handle(message: ReceivedMessage) -> None:
        seen[message.text()] += 1

    with (
        sparrowmq.sync.connect(target.namesrv) as mq,
        mq.subscribe(topic, handle, group=group, start="earliest"),
    ):
        yield lambda: Counter(seen)


@pytest.mark.parametrize("target", [OURS], indirect=True, scope="package")
@pytest.mark.parametrize("kind", ["ours", pytest.param("4.9.8", marks=pytest.mark.nightly)])
def test_an_operator_looks_at_a_consumer_moves_it_and_has_it_handle_one_message(target, admin, kind):
    topic, group = f"Asked-{kind.replace('.', '-')}", f"asked-{kind.replace('.', '-')}"
    target.create_topic(topic)

    def asked(*command: str) -> str:
        answer = admin.call(*command, "-n", target.namesrv)
        assert not answer["err"], answer["err"]
        return str(answer["out"])

    with sparrowmq.sync.connect(target.namesrv) as mq:
        sent = [mq.send(topic, str(number).encode()) for number in range(4)]
        with consuming(kind, target, group, topic) as seen:
            wait_until(lambda: seen().total() == 4, seen)
            (client_id,) = target.members(group)

            status = asked("consumerStatus", "-g", group, "-i", client_id, "-s")
            assert "CONSUME_PASSIVELY" in status and f"%RETRY%{group}" in status
            assert status.count("broker-a") >= 2 and "#Consumer Offset#" in status
            rates = status.partition("#Consumer RT&TPS#")[2]
            assert re.search(rf"(?m)^{topic} +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +\d+", rates), rates
            assert "TID:" in status or "java.lang" in status or 'File "' in status, "the stacks of its threads"

            direct = asked("queryMsgById", "-g", group, "-d", client_id, "-i", sent[2].offset_msg_id)
            assert "CR_SUCCESS" in direct
            assert seen() == {"0": 1, "1": 1, "2": 2, "3": 1}

            moved = asked("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
            assert moved.count("broker-a") == 2 or "broker-a" in moved
            wait_until(lambda: seen() == {"0": 2, "1": 2, "2": 3, "3": 2}, seen)


@pytest.mark.parametrize("target", JAVA_SERVERS, indirect=True, scope="package")
@pytest.mark.slow
async def test_an_operator_looks_at_our_consumer_and_moves_it_through_apaches_broker(target, mq, topic):
    version, group, bodies = target.name.removeprefix("apache-"), f"g-{topic}", Counter[bytes]()

    async def admin(*command: str) -> str:
        done = await asyncio.to_thread(mqadmin, version, *command, "-n", target.namesrv)
        return done.stdout + done.stderr

    async with mq.subscribe(topic, lambda msg: bodies.update([msg.body]), group=group, start="earliest"):
        for number in range(4):
            await mq.send(topic, b"%d" % number)
        await until(lambda: bodies.total() == 4)
        running = await admin("consumerStatus", "-g", group, "-i", mq.client_id)
        assert "CONSUME_PASSIVELY" in running and topic in running
        moved = await admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
        assert f"[{topic}]" in moved or topic in moved
        await until(lambda: bodies.total() == 8, limit_s=LIMIT_S)
    assert set(bodies.values()) == {2}
