import pytest

from sparrowmq.console.pages.trace import COLUMNS, chart, steps_of
from sparrowmq.protocol.messages.trace import PubTrace, Reaction, SubAfterTrace, SubBeforeTrace, TracedKind

pytestmark = pytest.mark.asyncio(loop_scope="session")

SENT = PubTrace(1000, "p", "orders", "id", None, None, "b:1", 10, 4, TracedKind.NORMAL, "o", True)
BEFORE = SubBeforeTrace(1010, "billing", "r1", "id", 2, None)
AFTER = SubAfterTrace("r1", "id", 30, False, None, Reaction.EXCEPTION)


async def test_what_a_consumer_said_before_and_after_is_one_step():
    steps = steps_of([SENT, BEFORE, AFTER, SubBeforeTrace(1020, "idle", "r2", "id", 0, None)])
    assert [(each.start_ms, each.end_ms, each.text, each.group, each.is_success) for each in steps] == [
        (1000, 1004, "sent", "p", True),
        (1010, 1040, "handled", "billing", False),
        (1020, 1020, "started to handle", "idle", None),
    ]
    assert steps[1].detail == "exception, after 2 failed"
    assert [column.cell(steps[1]) for column in COLUMNS][3] == "30 ms"


async def test_each_step_has_a_bar_at_its_time():
    drawn = chart(steps_of([SENT, BEFORE, AFTER]))
    offsets, bars = drawn["series"]
    assert offsets["data"] == [0, 10] and [each["value"] for each in bars["data"]] == [4, 30]


@pytest.mark.nightly
async def test_a_message_that_was_traced_shows_its_way(visit, stage):
    vera = await visit("vera")
    await vera.go(f"trace?id={stage.msg_id}")
    await vera.sees("sent", "SPARROWMQ_PRODUCER", "done")
    assert await vera.page.locator("canvas").count() == 1
    await vera.go("trace?id=unknown")
    await vera.sees("No client has reported a trace of this message")
