import json

import pytest
from click.testing import CliRunner

from sparrowmq.cli.dlq import dlq
from sparrowmq.client.client import Client
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture
def cluster(tmp_path):
    """A cluster where three messages of a group were given up."""
    with BackgroundCluster(tmp_path) as cluster:

        async def give_up():
            async with Client(cluster.namesrv) as mq:
                await mq.admin.create_group("billing")
                await mq.admin.create_topic("Orders")
                await mq.admin.create_topic(dlq_topic("billing"), queues=1)
                for body, tag in ((b"one", "A"), (b"two", "B"), (b"three", "A")):
                    await mq.send(dlq_topic("billing"), body, tag=tag)

        cluster.run(give_up())
        yield cluster


@pytest.fixture
def run(cluster):
    def run(*words, code=0, **options):
        done = CliRunner().invoke(dlq, [*words, "-n", cluster.namesrv], **options)
        assert done.exit_code == code, done.output
        return done

    return run


def bodies(run, *options):
    return [row["body"] for row in json.loads(run("list", "billing", *options, "-o", "json").stdout)]


def test_dead_letters_are_shown_the_eldest_first_and_chosen(run):
    assert bodies(run) == ["one", "two", "three"]
    assert bodies(run, "--tag", "A") == ["one", "three"] and bodies(run, "--tag", "A", "--limit", "1") == [
        "one"
    ]
    assert bodies(run, "--since", "1h") == ["one", "two", "three"] and bodies(run, "--topic", "None") == []
    assert "three" in run("list", "billing").stdout
    assert "no dead letter of group billing is X" in run("list", "billing", "--id", "X", code=1).output


def test_they_are_tried_again_after_a_question(run, cluster):
    assert (
        "2 dead letters of group billing would be sent again"
        in run("redrive", "billing", "--tag", "A", "--dry-run").stdout
    )
    run("redrive", "billing", input="n\n", code=1)
    assert (
        "sent 2 dead letters to group billing again"
        in run("redrive", "billing", "--tag", "A", "--rate", "100", "--yes").stdout
    )

    async def again():
        async with (
            Client(cluster.namesrv) as mq,
            mq.subscribe("Orders", group="billing", start="earliest") as orders,
        ):
            found: list[bytes] = []
            while len(found) < 2:
                each = await anext(aiter(orders))
                async with each.process():
                    found.append(each.body)
            return found

    assert sorted(cluster.run(again())) == [b"one", b"three"]
