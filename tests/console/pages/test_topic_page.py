import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.covers("S-ADM-04")
@pytest.mark.nightly
async def test_a_topic_shows_its_queues_route_and_groups_and_takes_a_message(visit, stage):
    olga = await visit("olga")
    await olga.go("topics/payments")
    await olga.sees("1 message in 4 queues", "broker-1", "1: 127.0.0.1:")
    await olga.press("Send")
    await olga.fill("Body", "by hand")
    await olga.fill("Keys, separated by blanks", "hand-1")
    await olga.fill("Properties: name=value, name=value", "nonsense")
    await olga.press("Send")
    await olga.sees("has no value; write name=value")
    await olga.fill("Properties: name=value, name=value", "a=1")
    await olga.press("Send")
    await olga.sees("sent ")
    async with stage.admin() as admin:
        (found,) = await admin.find("payments", "hand-1")
    assert (found.body, found.properties["a"]) == (b"by hand", "1")
    await olga.go("topics/orders")
    await olga.sees("billing")


@pytest.mark.nightly
@pytest.mark.covers("S-ADM-04")
async def test_a_topic_is_changed(visit, stage):
    boss = await visit("boss")
    await boss.go("topics/many-07")
    await boss.press("Change")
    await boss.fill("Read queues on each broker", "3")
    await boss.press("Save")
    await boss.sees("is changed")
    async with stage.admin() as admin:
        assert [each.read_queues for each in (await admin.topic("many-07")).shares] == [3, 3]


@pytest.mark.nightly
async def test_a_group_is_moved_in_a_topic_after_a_dry_run(visit, stage):
    olga = await visit("olga")
    await olga.go("topics/many-08")
    await olga.press("Reset offsets")
    await olga.fill("Group", "idle")
    await olga.press("Dry run")
    await olga.sees("Group idle would receive 0 messages of many-08 again")
    await olga.press("Reset offsets")
    await olga.sees("offsets of group idle are reset")
    async with stage.admin() as admin:
        assert [each.committed for each in (await admin.lag("idle", "many-08")).queues] == [0, 0]


@pytest.mark.nightly
async def test_a_topic_that_is_not_there_is_told(visit):
    vera = await visit("vera")
    await vera.go("topics/nowhere")
    await vera.misses("nowhere")
