import re
import time

import pytest


@pytest.fixture
def group(admin, topic):
    """A group that is known but away, whose topic has three messages in its first queue."""
    from sparrowmq.protocol.messages.message import MessageQueue

    admin.send(topic, b"x", b"y", b"z", queue=MessageQueue(topic, "broker-0", 0))
    name = f"g-{topic}"
    admin.ok(f"updateSubGroup -b {{broker}} -g {name}")
    admin.ok(f"updateTopic -b {{broker}} -t %RETRY%{name} -r 1 -w 1")
    return name


def rows(said):
    return [line.split() for line in said.splitlines() if line.startswith("broker-0")]


def test_a_group_that_is_away_is_reset_in_its_place(admin, topic, group):
    said = admin.ok(f"resetOffsetByTime -g {group} -t {topic} -s now")
    assert said.startswith(
        f"rollback consumer offset by specified consumerGroup[{group}], topic[{topic}], force[true], "
        "timestamp(string)[now], timestamp(long)[-1]\n#brokerName           #queueId "
    )
    assert rows(said) == [["broker-0", "0", "3", "0", "3", "3"], ["broker-0", "1", "0", "0", "0", "0"]]
    back = admin.ok(f"resetOffsetByTime -g {group} -t {topic} -s 0")
    assert ["broker-0", "0", "3", "3", "0", "0"] in rows(back)
    moment_ms = time.time_ns() // 1_000_000 + 1
    at_end = admin.ok(f"resetOffsetByTime -g {group} -t {topic} -s {moment_ms}")
    assert ["broker-0", "0", "3", "0", "3", "3"] in rows(at_end)
    admin.ok(f"resetOffsetByTime -g {group} -t {topic} -s 0")
    kept = admin.ok(f"resetOffsetByTime -g {group} -t {topic} -s now -f false")
    assert ["broker-0", "0", "3", "0", "3", "0"] in rows(kept)
    assert ["broker-0", "0", "3", "0", "3", "3"] in rows(admin.ok(f"skipAccumulatedMessage -g {group} -t {topic}"))


def test_a_time_that_is_none_and_a_topic_that_is_nowhere_are_told(admin, topic, group):
    assert "is no time" in admin(f"resetOffsetByTime -g {group} -t {topic} -s soon").err
    assert "CODE: 17" in admin(f"resetOffsetByTime -g {group} -t Absent -s 0").err


def test_offsets_are_cloned(admin, topic, group):
    admin.ok(f"skipAccumulatedMessage -g {group} -t {topic}")
    said = admin.ok(f"cloneGroupOffset -s {group} -d clone-{group} -t {topic}")
    assert said == f"clone group offset success. srcGroup[{group}], destGroup=[clone-{group}], topic[{topic}]"
    progress = admin.ok("brokerConsumeStats -b {broker}")
    admin.ok(f"updateSubGroup -b {{broker}} -g clone-{group}")
    assert re.search(rf"^{topic} +clone-{group} +broker-0 +0 +3 +3 ", admin.ok("brokerConsumeStats -b {broker}"), re.M)
    assert f"clone-{group}" not in progress
