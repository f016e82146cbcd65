import asyncio
import json
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner

from sparrowmq.admin.admin import Admin
from sparrowmq.cli.dlq import dlq
from sparrowmq.cli.group import group
from sparrowmq.client.client import Client
from sparrowmq.client.consuming.retry import Reject
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.names import dlq_topic, retry_topic
from sparrowmq.testing.background import BackgroundCluster
from tests.hostile_bodies import send_damaged


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


def test_a_body_that_cannot_be_decompressed_hides_no_other_letter(run, cluster):
    async def send():
        async with Client(cluster.namesrv) as mq:
            await send_damaged(mq, dlq_topic("billing"))

    cluster.run(send())
    assert "three" in bodies(run) and any("the zlib body is damaged" in body for body in bodies(run))
    group_run = CliRunner().invoke(group, ["dead-letters", "billing", "-n", cluster.namesrv])
    assert group_run.exit_code == 0 and len(group_run.output.splitlines()) == 5


def bodies(run, *options):
    return [row["body"] for row in json.loads(run("list", "billing", *options, "-o", "json").stdout)]


def test_dead_letters_are_shown_the_oldest_first_and_chosen(run):
    assert bodies(run) == ["one", "two", "three"]
    assert bodies(run, "--tag", "A") == ["one", "three"] and bodies(run, "--tag", "A", "--limit", "1") == ["one"]
    assert bodies(run, "--since", "1h") == ["one", "two", "three"] and bodies(run, "--topic", "None") == []
    assert "three" in run("list", "billing").stdout
    assert "no dead letter of group billing is X" in run("list", "billing", "--id", "X", code=1).output


def test_the_list_says_why_each_died_and_which_were_sent_again(run, cluster):
    async def reject():
        async with Client(cluster.namesrv) as mq:
            for body in (b"first", b"second"):
                await mq.send("Orders", body)

            def handle(message):
                raise Reject("no such customer") if message.reconsume_times == 0 else ValueError

            async with mq.subscribe("Orders", handle, group="shop", start="earliest", max_reconsume_times=9):
                while len(await mq.admin.dead_letters("shop")) < 2:
                    pass

    cluster.run(reject())
    first, second = json.loads(run("list", "shop", "-o", "json").stdout)
    assert [each["reason"] for each in (first, second)] == ["no such customer"] * 2
    assert [each["sent_again"] for each in (first, second)] == [None, None]
    run("redrive", "shop", "--id", first["id"], "--yes")
    first, second = json.loads(run("list", "shop", "-o", "json").stdout)
    assert datetime.fromisoformat(first["sent_again"]) <= datetime.now() and second["sent_again"] is None
    assert "no such customer" in run("list", "shop").stdout


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


def test_programs_get_whole_bodies_and_people_none_that_steers_the_terminal(run, cluster):
    async def give_up():
        async with Client(cluster.namesrv) as mq:
            await mq.admin.create_group("odd")
            await mq.admin.create_topic(dlq_topic("odd"), queues=1)
            await mq.send(dlq_topic("odd"), b"\x1b[2Jfirst\nsecond", tag="a\x1b[1m")

    cluster.run(give_up())
    assert json.loads(run("list", "odd", "-o", "json").stdout)[0]["body"] == "\x1b[2Jfirst\nsecond"
    assert "second" in run("list", "odd", "-o", "csv").stdout
    shown = run("list", "odd").stdout
    assert "\x1b" not in shown and r"\x1b[2Jfirst" in shown and "second" not in shown


@pytest.fixture
def many(cluster):
    """A hundred dead letters of another group, several of one millisecond; returns how many were sent again."""

    async def give_up():
        async with Client(cluster.namesrv) as mq:
            await mq.admin.create_group("many")
            await mq.admin.create_topic(dlq_topic("many"), queues=2)
            await mq.send_many([Message(dlq_topic("many"), b"%d" % number) for number in range(100)])

    async def again():
        async with Client(cluster.namesrv) as mq:
            return (await mq.admin.topic(retry_topic("many"))).count

    cluster.run(give_up())
    return lambda: cluster.run(again())


def test_all_are_tried_again_however_many_they_are(run, many):
    assert "100 dead letters" in run("redrive", "many", "--dry-run").stdout
    assert "sent 100 dead letters to group many again\n" in run("redrive", "many", "--yes").stdout
    assert many() == 100


def test_with_a_limit_the_next_ones_go_on_where_it_ended(run, many, cluster):
    said = ""
    words: list[str] = []
    for _ in range(4):
        dry = json.loads(run("redrive", "many", "--dry-run", "--limit", "30", *words, "-o", "json").stdout)
        assert dry["dry_run"] and dry["messages"] in (10, 30) and dry["group"] == "many"
        said = run("redrive", "many", "--yes", "--limit", "30", *words).stdout
        words = said.partition("go on with ")[2].split()
    assert "sent 10 dead letters" in said and words == [] and many() == 100

    async def bodies():
        async with Admin(cluster.namesrv) as admin:
            since = datetime.fromtimestamp(0, UTC)
            return {each.body for each in await admin.find(retry_topic("many"), since=since, limit=200)}

    assert len(cluster.run(bodies())) == 100, "one came twice, and another did not come"


def test_all_are_sent_again_by_group_dead_letters_too(many, cluster):
    done = CliRunner().invoke(group, ["dead-letters", "many", "--resend", "all", "-n", cluster.namesrv])
    assert done.exit_code == 0 and done.stdout.count("to group many again\n") == many() == 100
    shown = CliRunner().invoke(group, ["dead-letters", "many", "-n", cluster.namesrv])
    assert len(shown.stdout.splitlines()) == 65


@pytest.mark.parametrize("words", [["list"], ["redrive", "--dry-run"], ["redrive", "--yes"]])
def test_a_group_that_is_not_there_is_told(run, words):
    assert "no consumer group 'typo'" in run(*words, "typo", code=1).stderr


def test_a_group_without_dead_letters_is_fine(run, cluster):
    CliRunner().invoke(group, ["create", "healthy", "-n", cluster.namesrv])
    assert len(run("list", "healthy").stdout.splitlines()) == 1
    assert run("redrive", "healthy", "--yes").stdout.startswith("0 dead letters")


def test_interrupted_between_two_it_says_where_to_go_on(cluster, run):
    words = "dlq", "redrive", "billing", "--yes", "--rate", "0.01", "-n", cluster.namesrv
    process = subprocess.Popen([sys.executable, "-m", "sparrowmq", *words], stdout=subprocess.PIPE, text=True)

    async def sent():
        async with Admin(cluster.namesrv) as admin:
            while retry_topic("billing") not in await admin.topics(hidden=True):
                await asyncio.sleep(0.01)
            while (await admin.topic(retry_topic("billing"))).count == 0:
                await asyncio.sleep(0.01)

    try:
        cluster.run(sent())
        time.sleep(0.2)  # it has its answer
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert "1 of 3 were sent; go on with --since" in said
    rest = said.partition("go on with ")[2].split()
    assert "2 dead letters" in run("redrive", "billing", "--dry-run", *rest).stdout


def test_it_does_not_wait_after_the_last_one(cluster):
    words = "dlq", "redrive", "billing", "--yes", "--rate", "0.01", "--limit", "1", "-n", cluster.namesrv
    subprocess.run([sys.executable, "-m", "sparrowmq", *words], timeout=20, check=True)
