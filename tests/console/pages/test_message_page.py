import pytest

from sparrowmq.admin.groups import GroupLag, QueueLag
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.console.pages.messages import state_of
from sparrowmq.protocol.messages.message import MessageQueue
from tests.console.stage import HOSTILE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_group_is_behind_a_message_or_before_it(stage):
    async with stage.admin() as admin:
        message: ReceivedMessage = await admin.message(stage.msg_id, "orders")

    def state(committed, queue=message.queue):
        return state_of(message, GroupLag("g", (QueueLag(queue, 100, committed, None),), 0.0))

    assert state(message.offset + 1).startswith("passed: handled")
    assert state(message.offset - 4) == "5 messages before it"
    assert state(0, MessageQueue("orders", "another", 0)) == "has not consumed this queue"


@pytest.mark.nightly
async def test_a_message_shows_its_body_properties_and_groups(visit, stage):
    vera = await visit("vera")
    page = vera.page
    await vera.go(f"messages?topic=orders&id={stage.msg_id}")
    await page.locator("tbody a").first.click()
    await vera.sees('"number": 19', HOSTILE, "Failed deliveries", "billing", "passed: handled")
    await page.get_by_role("button", name="hex", exact=True).click()
    await vera.sees("7b 22 6e 75 6d 62 65 72")
    assert "form=hex" in page.url
    assert await page.get_by_role("button", name="Resend to a member").count() == 0
    assert await page.title() != "broken"


@pytest.mark.nightly
async def test_a_member_handles_it_once_more(visit, stage):
    olga = await visit("olga")
    await olga.go(f"messages/orders/{stage.msg_id}")
    await olga.press("Resend to a member")
    await olga.fill("Group", "billing")
    await olga.press("Show online members")
    await olga.sees(HOSTILE)
    await olga.press("Resend")
    await olga.sees("CR_SUCCESS")


@pytest.mark.nightly
async def test_one_that_is_gone_is_told(visit):
    vera = await visit("vera")
    await vera.go("messages/orders/7F0000010000000000000000DEAD0000")
    await vera.misses("7F0000010000000000000000DEAD0000")
