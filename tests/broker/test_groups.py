import json

import pytest

from sparrowmq.broker.groups import Groups
from sparrowmq.errors import InvalidName, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.bodies import GroupConfig


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "subscriptionGroup.json"


@pytest.fixture
def groups(path, clock):
    return Groups(path, True, clock)


def test_a_consumer_makes_its_group(groups):
    made = groups.ensure("billing")
    assert made == GroupConfig("billing")
    assert (made.retry_max_times, made.retry_queue_nums, made.consume_enable) == (16, 1, True)
    assert groups.ensure("billing") is made
    assert groups.version.counter == 1


def test_a_broker_may_be_told_not_to_make_groups(path, clock):
    groups = Groups(path, False, clock)
    with pytest.raises(RemoteError, match=r"subscription group not exist, billing.*updateSubGroup") as refused:
        groups.ensure("billing")
    assert refused.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert groups.ensure("TOOLS_CONSUMER").group_name == "TOOLS_CONSUMER", "tools work all the same"


def test_names_that_break_the_rules_make_no_group(groups):
    with pytest.raises(InvalidName):
        groups.ensure("a@b")


def test_a_deleted_group_is_gone(groups):
    groups.ensure("billing")
    assert groups.delete("billing")
    assert not groups.delete("billing")
    assert groups.get("billing") is None
    assert groups.all() == []


async def test_groups_survive_a_restart_in_javas_form(groups, path, clock):
    groups.put(GroupConfig("billing", retry_max_times=3, consume_enable=False))
    await groups.file.save()
    saved = json.loads(path.read_bytes())
    assert saved["subscriptionGroupTable"]["billing"]["retryMaxTimes"] == 3
    again = Groups(path, True, clock)
    assert again.get("billing") == groups.get("billing")
    assert again.version == groups.version


def test_javas_file_is_read(path, clock):
    path.parent.mkdir()
    path.write_text(
        '{"dataVersion":{"counter":4,"timestamp":1},"subscriptionGroupTable":{"G":{"brokerId":0,'
        '"consumeBroadcastEnable":true,"consumeEnable":true,"consumeFromMinEnable":true,"groupName":"G",'
        '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":5,"retryQueueNums":2,"whichBrokerWhenConsumeSlowly":1}}}'
    )
    group = Groups(path, False, clock).ensure("G")
    assert (group.retry_max_times, group.retry_queue_nums) == (5, 2)


async def test_a_slave_has_the_groups_of_its_master_and_its_version(groups, path, clock, tmp_path):
    groups.ensure("mine")
    master = Groups(tmp_path / "master.json", True, clock)
    for name in ("billing", "audit", "shipping"):
        master.ensure(name)
    groups.follow(master.content())
    assert {group.group_name for group in groups.all()} == {"billing", "audit", "shipping"}
    assert groups.version.is_same(master.version) and groups.file.dirty
    await groups.file.save()
    groups.follow(master.content())
    assert not groups.file.dirty
    assert Groups(path, True, clock).get("audit") == GroupConfig("audit")
