import asyncio
import re
from pathlib import Path

import pytest

from sparrowmq.client.client import Client


@pytest.fixture
def consumed(admin, topic):
    """A group with a member on line that has consumed two messages of the topic."""
    group, client = f"g-{topic}", Client(admin.cluster.namesrv)

    async def consume():
        handled: asyncio.Queue[object] = asyncio.Queue()
        await client.__aenter__()
        for body in (b"x", b"y"):
            await client.send(topic, body)
        consumer = client.subscribe(topic, handled.put, group=group, start="earliest")
        await consumer.__aenter__()
        for _ in range(2):
            await handled.get()
        return consumer

    consumer = admin.cluster.run(consume())
    yield group

    async def leave():
        await consumer.__aexit__(None, None, None)
        await client.__aexit__(None, None, None)

    admin.cluster.run(leave())


def test_members_progress_and_rates_of_a_group_are_shown(admin, topic, consumed):
    said = admin.ok(f"consumerConnection -g {consumed}")
    assert said.startswith("#ClientId                            #ClientAddr            #Language  #Version\n")
    assert re.search(rf"^{topic} +\*$", said, re.M) and "ConsumeType: CONSUME_PASSIVELY\n" in said
    assert admin.ok(f"consumerConnection -g {consumed} -b {{broker}}") == said
    rows = admin.ok(f"consumerProgress -g {consumed} -s true").splitlines()
    assert rows[0].split()[-4:] == ["#Client", "IP", "#Diff", "#LastTime"]
    assert rows[-2].startswith("Consume TPS: ") and rows[-1].startswith("Diff Total: ")
    of_all = admin.ok("consumerProgress").splitlines()
    (row,) = [line.split() for line in of_all if line.startswith(consumed)]
    assert (row[1], row[3], row[4]) == ("1", "PUSH", "CLUSTERING")


def test_what_a_member_does_is_written_to_a_file_or_shown(admin, topic, consumed):
    said = admin.ok(f"consumerStatus -g {consumed}").splitlines()
    number, client_id, _, path = said[1].split()
    assert number == "1" and said[-1] == "Rebalance OK"
    text = Path(path).read_text()
    assert text.startswith("#Consumer Properties#\n") and f"Topic: {topic}" in text
    shown = admin.ok(f"consumerStatus -g {consumed} -i {client_id}")
    assert "#Consumer MQ Detail#" in shown and "ProcessQueueInfo [commitOffset=" in shown


def test_a_member_consumes_a_message_on_demand_and_the_message_says_so(admin, topic, consumed):
    (sent,) = admin.send(topic, b"once more")
    client_id = admin.ok(f"consumerConnection -g {consumed}").splitlines()[1].split()[0]
    said = admin(f"queryMsgById -i {sent.offset_msg_id} -g {consumed} -d {client_id}")
    assert said.out.startswith("ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult="), said
    shown = admin.ok(f"queryMsgById -i {sent.offset_msg_id}")
    assert re.search(rf"MessageTrack \[consumerGroup={consumed}, trackType=(NOT_CONSUME_YET|CONSUMED), ", shown)


def test_a_group_that_nobody_knows_is_told(admin, topic):
    for line in ("consumerProgress -g nobody", "consumerConnection -g nobody", "consumerStatus -g nobody"):
        said = admin(line)
        assert said.code == 1 and "No topic route info in name server for the topic: %RETRY%nobody" in said.err
    said = admin(f"producerConnection -g nobody -t {topic}")
    assert "CODE: 1  DESC: the producer group[nobody] not exist" in said.err
