"""`sparrowmq bench`, at a broker."""

import asyncio
import json
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest
from click.testing import CliRunner

from sparrowmq.cli.bench import MAX_BODY_BYTES, Load, MessageTaker, bench
from sparrowmq.client.client import Client
from sparrowmq.loop.clock import SystemClock
from sparrowmq.testing.background import BackgroundCluster

FIGURES = [
    *("messages", "seconds", "messages_s", "mb_s", "p50_ms", "p95_ms", "p99_ms", "greatest_ms", "failed"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {"auto_create_topic": False, "property_filter": True}
    with BackgroundCluster(tmp_path_factory.mktemp("bench"), **settings) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster, request):
    """A topic of the test's own."""
    name = request.node.name.partition("[")[0][:100]
    asked(cluster, lambda mq: mq.admin.create_topic(name, exist_ok=True))
    return name


@pytest.fixture
def run(cluster):
    def run(*words, code=0, **options):
        done = CliRunner().invoke(bench, [*words, "-n", cluster.namesrv], **options)
        assert done.exit_code == code, done.output
        return done

    return run


def asked(cluster, question):
    async def ask():
        async with Client(cluster.namesrv) as mq:
            return await question(mq)

    return cluster.run(ask())


def stored(cluster, topic):
    found = asked(cluster, lambda mq: mq.admin.topic(topic))
    return sum(each.max_offset - each.min_offset for each in found.queues)


def measured(run, *words, **options):
    """The figures, and the failures."""
    found = json.loads(run(*words, "-o", "json", **options).stdout)
    (figures,) = found["figures"]
    assert list(figures) == FIGURES
    return figures, found["errors"]


class near:
    """A number that was rounded somewhere; pytest.approx asks for numpy, which the broker's thread may just import."""

    def __init__(self, number):
        self._number = number

    def __eq__(self, other):
        return abs(self._number - other) <= 0.02 * self._number + 0.001

    def __repr__(self):
        return f"nearly {self._number}"


@pytest.mark.parametrize("batch", [1, 7])
def test_as_many_as_were_said_are_sent_and_the_figures_add_up(run, cluster, topic, batch):
    before, count = stored(cluster, topic), 500 * batch
    figures, errors = measured(run, "send", topic, "--count", str(count), "--size", "1000", "--batch", str(batch))
    assert stored(cluster, topic) - before == figures["messages"] == count
    assert figures["failed"] == 0 and errors == []
    shortest, longest = (
        figures["seconds"] - 0.0005,
        figures["seconds"] + 0.0005,
    )  # they are told in milliseconds
    assert count / longest - 1 <= figures["messages_s"] <= count / shortest + 1
    assert figures["mb_s"] == near(figures["messages_s"] / 1000)
    assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"] <= figures["greatest_ms"]
    assert figures["greatest_ms"] <= 1000 * longest


def test_messages_are_as_they_were_wanted(run, cluster, topic):
    words = ("--size", "5000", "--tag", "A", "--keys", "--properties", "2", "--count", "3")
    assert "MESSAGES  SECONDS  MESSAGES/S" in run("send", topic, *words).stdout
    found = asked(cluster, lambda mq: mq.admin.find(topic, since=datetime.now() - timedelta(hours=1)))
    assert [(len(each.body), len(each.stored.body), each.tag) for each in found] == [(5000, 5000, "A")] * 3
    assert len({key for each in found for key in each.keys}) == 3
    assert all(each.properties["property1"] == "value1" for each in found)


def test_a_delay_level_is_asked_for():
    (message, *_) = [next(Load(9, 1, 1, None, False, 0, 3).messages("T"))]
    assert (message.delay_level, message.body) == (3, b"012345678")


def test_it_ends_in_time_and_no_earlier_than_its_rate_allows(run, topic):
    figures, _ = measured(run, "send", topic, "--seconds", "0.4", "--rate", "100")
    assert 1 <= figures["messages"] <= 40
    figures, _ = measured(run, "send", topic, "--count", "21", "--rate", "100")
    assert figures["messages"] == 21 and figures["seconds"] >= 0.19


def test_all_is_consumed_by_a_group_that_is_gone_afterwards(run, cluster, topic):
    run("send", topic, "--count", "300", "--size", "100")
    figures, errors = measured(run, "consume", topic, "--count", "300")
    assert (figures["messages"], figures["failed"], errors) == (300, 0, [])
    assert figures["mb_s"] == near(figures["messages_s"] / 1e4)
    assert figures["p50_ms"] is None  # they were there before
    assert asked(cluster, lambda mq: mq.admin.groups()) == []


def test_a_group_that_was_named_goes_on_where_it_stopped_and_stays(run, cluster, topic):
    run("send", topic, "--count", "30")
    for count in (10, 20):
        figures, _ = measured(run, "consume", topic, "--group", "stays", "--count", str(count))
        assert figures["messages"] == count
    lag = asked(cluster, lambda mq: mq.admin.lag("stays", topic))
    assert lag.lag == 0
    asked(cluster, lambda mq: mq.admin.delete_group("stays"))


@pytest.mark.parametrize("words", [("--tag", "A"), ("--where", "property0 = 'value0'")])
def test_only_those_that_fit_are_consumed(run, topic, words):
    run("send", topic, "--count", "10")
    run("send", topic, "--count", "5", "--tag", "A", "--properties", "1")
    figures, _ = measured(run, "consume", topic, *words, "--count", "5")
    assert figures["messages"] == 5


def test_new_messages_have_the_time_that_they_were_on_their_way(run, cluster, topic):
    over = threading.Event()

    async def keep_sending(mq):
        while not over.is_set():
            await mq.send(topic, b"x")
            await asyncio.sleep(0.005)

    with ThreadPoolExecutor(1) as sending:
        ended = sending.submit(asked, cluster, keep_sending)
        try:
            figures, _ = measured(run, "consume", topic, "--start", "latest", "--count", "20")
        finally:
            over.set()
        ended.result()
    assert figures["messages"] == 20 and 0 <= figures["p50_ms"] <= figures["greatest_ms"]


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C ends it at once there")
def test_ctrl_c_ends_sending_early_with_a_summary_of_all_that_is_stored(cluster, topic, start, until):
    sending = start("bench", "send", topic, "--seconds", "60", "-o", "json", "-n", cluster.namesrv)
    until(lambda: stored(cluster, topic) > 50)
    figures = interrupted(sending)
    assert figures["messages"] == stored(cluster, topic) and figures["failed"] == 0


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C ends it at once there")
async def test_ctrl_c_ends_consuming_early_with_all_that_came_counted(cluster, topic):
    async with Client(cluster.namesrv) as mq:
        await asyncio.gather(*(mq.send(topic, b"x") for _ in range(30)))
        async with mq.subscribe(topic, group="early", start="earliest") as consumer:
            taker = MessageTaker(consumer, SystemClock())
            running = asyncio.create_task(taker.run(1000, 60))
            async with asyncio.timeout(10):
                while taker.tally.messages < 30:
                    await asyncio.sleep(0.01)
                os.kill(os.getpid(), signal.SIGINT)
                await running
        await mq.admin.delete_group("early")
    assert (taker.tally.messages, taker.tally.failed_count) == (30, 0)


def test_what_fails_is_counted_by_its_name_and_is_no_success(run, cluster, topic, until):
    def delete():
        until(lambda: stored(cluster, topic) > 5)
        asked(cluster, lambda mq: mq.admin.delete_topic(topic))

    with ThreadPoolExecutor(1) as deleting:
        ended = deleting.submit(delete)
        words = ("send", topic, "--count", "60", "--rate", "100", "--timeout", "1")
        figures, errors = measured(run, *words, code=1)
        ended.result()
    assert figures["messages"] > 5 and figures["messages"] + figures["failed"] == 60
    assert sum(each["count"] for each in errors) == figures["failed"] > 0
    assert {each["error"] for each in errors} <= {"RemoteError 17", "NoRoute"} and errors[0]["the_first"]


def interrupted(started):
    started.process.send_signal(signal.SIGINT)
    text, log = started.process.communicate(timeout=20)
    assert started.process.returncode == 0, log
    (figures,) = json.loads(text)["figures"]
    return figures


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["send", "Absent"], 1, "there is no topic Absent; `sparrowmq topic create Absent` makes it"),
        (["consume", "Absent"], 1, "there is no topic Absent; `sparrowmq topic create Absent` makes it"),
        (["send", "a$b"], 2, "a$b"),
        (["send", "T", "--count", "0"], 2, "'--count': 0 is not in the range"),
        (["send", "T", "--seconds", "0"], 2, "'--seconds': 0.0 is not in the range"),
        (["send", "T", "--seconds", "nan"], 2, "nan is not a finite number"),
        (["consume", "T", "--seconds", "inf"], 2, "inf is not a finite number"),
        (["send", "T", "--rate", "-1"], 2, "'--rate': -1.0 is not in the range"),
        (["send", "T", "--in-flight", "0"], 2, "'--in-flight': 0 is not in the range"),
        (["send", "T", "--batch", "0"], 2, "'--batch': 0 is not in the range"),
        (["send", "T", "--size", str(MAX_BODY_BYTES + 1)], 2, "is not in the range"),
        (["send", "T", "--delay-level", "19"], 2, "is not in the range"),
        (["consume", "T", "--count", "-1"], 2, "'--count': -1 is not in the range"),
        (["consume", "T", "--start", "soon"], 2, "'soon' is not one of 'earliest', 'latest'"),
    ],
)
def test_what_cannot_be_is_told(run, words, code, said):
    assert said in run(*words, code=code).output


def test_what_is_too_large_for_the_broker_is_told_at_once(run, topic):
    said = run("send", topic, "--size", str(5 << 20), code=1).output
    assert "maxMessageSize" in said


def test_a_filter_that_cannot_be_understood_is_told_and_leaves_no_group(run, cluster, topic):
    assert "amount" in run("consume", topic, "--where", "amount >", code=2).output
    assert asked(cluster, lambda mq: mq.admin.groups()) == []
