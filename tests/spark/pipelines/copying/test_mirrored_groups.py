"""sparrowmq.spark.pipelines.mirrored_groups: a group goes on at the target where it was at the source."""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import count, islice

import pytest

pytest.importorskip("pyspark")

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError, NetworkError
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SinkOptions, SourceOptions, parse
from sparrowmq.spark.pipelines import mirrored_groups
from sparrowmq.spark.pipelines.message_copies import Copier, Copying, Original, pull_messages
from sparrowmq.spark.pipelines.mirrored_groups import MirroredGroups
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.worker import connect
from sparrowmq.testing.background import BackgroundCluster

QUEUES = 2
_numbers = count()


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """The name server of another cluster."""
    with BackgroundCluster(tmp_path_factory.mktemp("far")) as cluster:
        yield cluster.namesrv


class Side:
    """One cluster with the topic and the group of a test."""

    def __init__(self, namesrv, number):
        self.namesrv = namesrv
        self.topic, self.group = f"mirrored-{number}", f"billing-{number}"
        with sync.connect(namesrv) as mq:
            mq.admin.create_topic(self.topic, queues=QUEUES)

    def send(self, number):
        with sync.connect(self.namesrv) as mq:
            for _ in range(number):
                mq.send(self.topic, b"x", fifo="one")

    def read(self, offset, suffix=""):
        """Let a group have read the messages below an offset in each queue."""
        with sync.connect(self.namesrv) as mq:
            mq.admin.create_group(self.group + suffix, max_retries=3, exist_ok=True)
            mq.admin.reset(self.group + suffix, self.topic, to=offset)

    def offsets(self, suffix=""):
        with sync.connect(self.namesrv) as mq:
            return sorted(each.committed for each in mq.admin.lag(self.group + suffix, self.topic).queues)

    def messages(self):
        """The messages of the first queue that has any, and this queue."""
        for number in range(QUEUES):
            queue = MessageQueue(self.topic, "broker-0", number)
            with connect(parse(SourceOptions, {"nameServer": self.namesrv, "topic": self.topic})) as network:
                network.route(self.topic)
                found = [record.decode(each) for each in pull_messages(network.link(queue), queue, 0, 1000)]
            if found:
                return queue, found
        raise AssertionError("no message")


class Mirror:
    def __init__(self, source, target, folder, say=lambda _: None, groups="billing-.*"):
        self.source, self.target = source, target
        self.sink = parse(SinkOptions, {"nameServer": target.namesrv})
        self.state = State(folder, {"topic": source.topic})
        queues = [MessageQueue(source.topic, "broker-0", number) for number in range(QUEUES)]
        self.state.keep_targets(dict(zip(queues, queues, strict=True)))
        options = parse(SourceOptions, {"nameServer": source.namesrv, "topic": source.topic})
        self.groups = MirroredGroups(groups, options, self.sink, self.state, None, say)

    def copy(self, each_nth=1):
        queue, messages = self.source.messages()
        rows = [
            Original(queue, offset, 1_700_000_000_000, 0, 0, dict(each.properties), each.body)
            for offset, each in enumerate(messages)
            if offset % each_nth == 0
        ]
        with connect(self.sink) as network:
            Copier(network, Copying(self.sink, self.state.label, self.state.targets)).copy(rows)


@pytest.fixture
def sides(namesrv, far):
    number = next(_numbers)
    return Side(namesrv, number), Side(far, number)


@pytest.fixture
def mirrored(tmp_path):
    with ExitStack() as stack:

        def mirrored(source, target, **given):
            made = Mirror(source, target, tmp_path / source.namesrv.replace(":", "-"), **given)
            stack.enter_context(made.groups)
            return made

        yield mirrored


def test_a_group_goes_on_behind_the_last_copy_that_it_has_read(sides, mirrored):
    near, there = sides
    near.send(30)
    near.read(20)
    mirror = mirrored(near, there)
    mirror.copy()
    assert mirror.groups.carry() == 1
    assert there.offsets() == [0, 20]
    with sync.connect(there.namesrv) as mq:
        (config,) = mq.admin.group(there.group).settings.values()
        assert config.retry_max_times == 3
    near.read(30)
    mirror.groups.carry()
    assert there.offsets() == [0, 30]
    assert mirror.groups.carry() == 0


def test_a_group_that_a_consumer_made_by_itself_is_made_too(sides, mirrored):
    near, there = sides
    near.send(3)
    with sync.connect(near.namesrv) as mq, mq.subscribe(near.topic, group=near.group) as consumer:
        for message in islice(consumer, 3):
            message.ack()
    mirror = mirrored(near, there)
    mirror.copy()
    assert mirror.groups.carry() == 1
    with sync.connect(there.namesrv) as mq:
        assert mq.admin.group(there.group).settings


def test_an_offset_is_not_ahead_of_the_copies(sides, mirrored):
    near, there = sides
    near.send(10)
    mirror = mirrored(near, there)
    mirror.copy()
    near.send(10)
    near.read(20)
    mirror.groups.carry()
    assert there.offsets() == [0, 10]
    mirror.copy()
    mirror.groups.carry()
    assert there.offsets() == [0, 20]


def test_a_group_never_goes_back(sides, mirrored):
    near, there = sides
    near.send(30)
    near.read(10)
    mirror = mirrored(near, there)
    mirror.copy()
    there.read(25)
    assert mirror.groups.carry() == 0
    assert max(there.offsets()) == 25


def test_a_group_with_a_member_at_the_target_is_left_alone(sides, mirrored):
    near, there = sides
    near.send(30)
    near.read(20)
    mirror = mirrored(near, there)
    mirror.copy()
    with sync.connect(there.namesrv) as mq, mq.subscribe(there.topic, group=there.group):
        assert mirror.groups.carry() == 0
    assert mirror.groups.carry() == 1


def test_a_message_that_was_written_at_the_target_stays_unread(sides, mirrored):
    near, there = sides
    lines: list[str] = []
    near.send(10)
    mirror = mirrored(near, there, say=lines.append)
    mirror.copy()
    there.send(1)
    near.send(10)
    mirror.copy()
    near.read(20)
    mirror.groups.carry()
    assert there.offsets() == [0, 10]
    assert any("this message was written there" in line for line in lines)


def test_mirrors_in_both_directions_pass_what_the_group_has_read_as_copies(sides, mirrored):
    near, there = sides
    forth, back = mirrored(near, there), mirrored(there, near)
    near.send(10)
    forth.copy()
    there.send(5)
    back.copy()
    near.send(5)
    forth.copy()
    near.read(12)  # ten of its own, and two of the five copies
    forth.groups.carry()
    assert there.offsets() == [0, 12]
    near.read(20)
    near.read(13, "-slow")
    forth.groups.find_groups_again()
    forth.groups.carry()
    assert (there.offsets(), there.offsets("-slow")) == ([0, 20], [0, 13])


def test_a_group_skips_nothing_of_a_target_topic_that_was_made_again(sides, mirrored):
    near, there = sides
    near.send(30)
    near.read(30)
    mirror = mirrored(near, there)
    mirror.copy()
    mirror.groups.carry()
    with sync.connect(there.namesrv) as mq:
        mq.admin.delete_group(there.group)
        mq.admin.delete_topic(there.topic)
        mq.admin.create_topic(there.topic, queues=QUEUES)
    there.send(40)
    mirror.groups.find_groups_again()
    mirror.groups.carry()
    assert there.offsets() == [0, 0]


def test_a_group_skips_nothing_of_a_target_topic_that_was_made_again_with_mirrors_in_both_directions(sides, mirrored):
    near, there = sides
    forth, back = mirrored(near, there), mirrored(there, near)
    there.send(5)
    back.copy()
    near.read(3)
    forth.groups.carry()
    assert there.offsets() == [0, 3]
    near.read(5)
    with sync.connect(there.namesrv) as mq:
        mq.admin.delete_topic(there.topic)
        mq.admin.create_topic(there.topic, queues=QUEUES)
    there.send(5)  # other messages, at the places of those that the group has read
    forth.groups.carry()
    assert there.offsets() == [0, 0]


def test_memory_does_not_grow_with_a_group_that_stays_behind(sides, mirrored, monkeypatch):
    """A filter leaves gaps between the originals, so each copy is a run of its own."""
    monkeypatch.setattr(mirrored_groups, "_MAX_RUNS", 4)
    near, there = sides
    near.send(120)
    for suffix, offset in {"-dead": 3, "-slow": 70, "": 110}.items():
        near.read(offset, suffix)
    mirror = mirrored(near, there)
    mirror.copy(each_nth=2)

    def carry():
        while mirror.groups.carry():
            for parts in mirror.groups._copied_parts.values():
                assert len(parts) <= 3 and all(part.places.run_count <= 4 for part in parts)

    carry()
    assert [max(there.offsets(suffix)) for suffix in ("-dead", "-slow", "")] == [2, 35, 55]
    near.read(90, "-dead")
    near.read(120)
    with mirror.groups.in_background(once=True):
        pass
    assert [max(there.offsets(suffix)) for suffix in ("-dead", "-slow", "")] == [45, 35, 60]


def test_a_copy_of_a_third_cluster_is_no_copy_of_the_target(sides, namesrv, mirrored, tmp_path):
    near, there = sides
    there.send(5)
    queue, _ = there.messages()
    third = Original(queue, 0, 1_700_000_000_000, 0, 0, {"UNIQ_KEY": "another"}, b"third")
    into = State(tmp_path / "third", {})
    sink = parse(SinkOptions, {"nameServer": near.namesrv})
    with connect(sink) as network:
        Copier(network, Copying(sink, into.label, {third.queue: third.queue})).copy([third])
    near.read(1)
    mirror = mirrored(near, there)
    mirror.groups.carry()
    assert there.offsets() == [0, 0]


def test_carrying_goes_on_after_a_failure(sides, mirrored, monkeypatch):
    near, there = sides
    lines: list[str] = []
    near.send(10)
    near.read(5)
    mirror = mirrored(near, there, say=lines.append)
    mirror.copy()
    failures = iter([NetworkError("away"), ValueError("odd")])
    carry = mirror.groups.carry

    def fails_first():
        if failure := next(failures, None):
            raise failure
        return carry()

    monkeypatch.setattr(mirror.groups, "carry", fails_first)
    monkeypatch.setattr("sparrowmq.spark.pipelines.mirrored_groups._ROUND_INTERVAL_S", 0.05)
    with mirror.groups.in_background(once=False):
        deadline = time.monotonic() + 20
        while not any("carries the offsets" in line for line in lines):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert [line for line in lines if "cannot be carried" in line] == [
        "the offsets of groups cannot be carried now: away",
        "the offsets of groups cannot be carried now: odd",
    ]


def test_other_groups_are_not_carried(sides, mirrored):
    near, there = sides
    near.send(10)
    near.read(5)
    mirror = mirrored(near, there, groups="bill, other-.*")
    mirror.copy()
    assert mirror.groups.carry() == 0


def test_offsets_are_carried_beside_the_work_and_at_its_end(sides, mirrored):
    near, there = sides
    near.send(10)
    near.read(5)
    mirror = mirrored(near, there)
    with mirror.groups.in_background(once=True):
        mirror.copy()
    assert max(there.offsets()) == 5


@pytest.mark.parametrize("away", ["near", "far"])
def test_a_broker_that_is_away_holds_up_its_own_queues_only(tmp_path, mirrored, away):
    with (
        BackgroundCluster(tmp_path / "near", brokers=2) as near_cluster,
        BackgroundCluster(tmp_path / "far", brokers=2) as far_cluster,
    ):
        near, there = (Side(each.namesrv, next(_numbers)) for each in (near_cluster, far_cluster))
        there.topic, there.group = near.topic, near.group
        for side in (near, there):
            with sync.connect(side.namesrv) as mq:
                for name in (near.topic, "only-there"):
                    mq.admin.create_topic(name, queues=QUEUES, exist_ok=True)
        with sync.connect(near.namesrv) as mq:
            for _ in range(16):
                mq.send(near.topic, b"x")
                mq.send("only-there", b"x")
        near.read(2)
        with sync.connect(near.namesrv) as mq:
            mq.admin.create_group("billing-there")
            mq.admin.reset("billing-there", "only-there", to="latest")
        mirror = mirrored(near, there)
        pairs = {MessageQueue("only-there", "broker-1", number) for number in range(QUEUES)}
        mirror.state.keep_targets(mirror.state.targets | {queue: queue for queue in pairs})
        mirror.groups.carry()
        mirror.copy()
        stopped = near_cluster if away == "near" else far_cluster
        stopped.run(stopped.cluster.brokers[1]._server.stop())
        mirror.groups.find_groups_again()
        assert mirror.groups.carry() == 1
        assert mirror.groups.carry() == 0


@pytest.mark.parametrize("groups", ["", " ", ",", "a,,b"])
def test_groups_without_a_name_are_refused(sides, mirrored, groups):
    with pytest.raises(ConfigError, match="contains an empty name"):
        mirrored(*sides, groups=groups)


def test_a_comma_within_an_expression_divides_no_names(sides, mirrored):
    near, there = sides
    near.send(10)
    near.read(5)
    mirror = mirrored(near, there, groups="billing-[0-9]{1,3}, (other|more,less)-.*")
    mirror.copy()
    assert mirror.groups.carry() == 1


def test_an_expression_that_is_none_is_refused(sides, mirrored):
    with pytest.raises(ConfigError, match="no regular expression"):
        mirrored(*sides, groups="billing-(")
