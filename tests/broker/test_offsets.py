import json

import pytest

from sparrowmq.broker.offsets import Offsets
from sparrowmq.errors import BadStore
from sparrowmq.loop.slices import at_once
from sparrowmq.protocol.requests.offset_bodies import ConsumerOffsets


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config" / "consumerOffset.json"


@pytest.fixture
def offsets(path):
    return Offsets(path)


def answer_of(master):
    """What a slave gets from its master."""
    return ConsumerOffsets({key: dict(queues) for key, queues in master.rows()})


def test_a_group_goes_on_where_it_committed(offsets):
    assert offsets.query("g", "Orders", 0) is None
    offsets.commit("g", "Orders", 0, 12)
    offsets.commit("g", "Orders", 1, 7)
    offsets.commit("h", "Orders", 0, 3)
    assert offsets.query("g", "Orders", 0) == 12
    assert offsets.of_group("g", "Orders") == {0: 12, 1: 7}
    assert offsets.of_group("nobody", "Orders") == {}


def test_no_group_goes_on_behind_the_end_of_a_queue(offsets, path, caplog):
    offsets.commit("g", "Orders", 0, 12)
    offsets.commit("g", "Orders", 1, 7)
    offsets.commit("h", "Gone", 3, 5)
    offsets.clamp(lambda topic, queue_id: {("Orders", 0): 10, ("Orders", 1): 7}.get((topic, queue_id), 0))
    assert offsets.of_group("g", "Orders") == {0: 10, 1: 7}
    assert offsets.query("h", "Gone", 3) == 0
    assert "group g had consumed Orders/0 up to 12, but the queue ends at 10; the group continues there" in caplog.text
    assert offsets.file.dirty


def test_a_reset_may_go_back(offsets):
    offsets.commit("g", "Orders", 0, 12)
    offsets.commit("g", "Orders", 0, 3)
    assert offsets.query("g", "Orders", 0) == 3


def test_topics_and_groups_are_found_from_each_other(offsets):
    offsets.commit("g", "Orders", 0, 1)
    offsets.commit("g", "Payments", 0, 1)
    offsets.commit("h", "Orders", 0, 1)
    assert sorted(offsets.topics_of("g")) == ["Orders", "Payments"]
    assert offsets.topics_of("nobody") == []
    assert sorted(at_once(offsets.groups_of("Orders"))) == ["g", "h"]


def test_a_group_may_go_on_where_another_is(offsets):
    offsets.commit("g", "Orders", 0, 5)
    offsets.commit("g", "Orders", 1, 6)
    at_once(offsets.cloning("g", "h", "Orders"))
    assert offsets.of_group("h", "Orders") == {0: 5, 1: 6}


def test_deleting_a_group_or_a_topic_forgets_its_offsets(offsets):
    for group in ("g", "h"):
        offsets.commit(group, "Orders", 0, 1)
        offsets.commit(group, "Payments", 0, 1)
    offsets.delete_group("g")
    offsets.delete_group("g")
    assert offsets.topics_of("g") == []
    offsets.delete_topic("Orders")
    offsets.delete_topic("Orders")
    assert offsets.topics_of("h") == ["Payments"]


@pytest.mark.covers("S-CONS-05")
async def test_offsets_survive_a_restart_in_javas_form(offsets, path):
    offsets.commit("g", "%RETRY%g", 0, 1)
    offsets.commit("g", "Orders", 3, 7)
    await offsets.file.save()
    assert json.loads(path.read_bytes())["offsetTable"] == {"%RETRY%g@g": {"0": 1}, "Orders@g": {"3": 7}}
    assert dict(Offsets(path).rows()) == dict(offsets.rows())


async def test_a_commit_that_changes_nothing_is_not_saved_again(offsets):
    offsets.commit("g", "Orders", 0, 1)
    await offsets.file.save()
    offsets.commit("g", "Orders", 0, 1)
    assert not offsets.file.dirty


def test_the_bare_integers_of_javas_file_are_read(path):
    path.parent.mkdir()
    path.write_text('{"dataVersion":{"counter":1},"offsetTable":{"Orders@g":{0:12,1:7}}}')
    assert Offsets(path).of_group("g", "Orders") == {0: 12, 1: 7}


@pytest.mark.parametrize("text", ["{", '{"offsetTable":[]}', '{"offsetTable":{"a@b":{"x":1}}}'])
def test_a_file_of_something_else_says_what_to_do(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(BadStore, match=r"consumerOffset\.json.*restore it"):
        Offsets(path)


async def test_a_slave_has_the_offsets_of_its_master_and_no_others(offsets, path, tmp_path):
    offsets.commit("g", "Orders", 0, 12)
    offsets.commit("gone", "Orders", 0, 3)
    master = Offsets(tmp_path / "master.json")
    master.commit("g", "Orders", 0, 20)
    master.commit("h", "Payments", 1, 5)
    offsets.follow(answer_of(master))
    assert (offsets.query("g", "Orders", 0), offsets.query("h", "Payments", 1)) == (20, 5)
    assert offsets.query("gone", "Orders", 0) is None
    await offsets.file.save()
    offsets.follow(answer_of(master))
    assert not offsets.file.dirty and Offsets(path).query("g", "Orders", 0) == 20
    master.commit("g", "Orders", 0, 21)
    assert offsets.query("g", "Orders", 0) == 20


@pytest.mark.parametrize(
    "change",
    [
        lambda offsets: offsets.clamp(lambda _topic, _queue_id: 10),
        lambda offsets: offsets.delete_topic("Orders"),
        lambda offsets: offsets.delete_group("g"),
        lambda offsets: offsets.replace({}),
    ],
)
async def test_each_change_is_saved(offsets, change):
    offsets.commit("g", "Orders", 0, 12)
    await offsets.file.save()
    assert not offsets.file.dirty
    change(offsets)
    assert offsets.file.dirty


def test_rows_go_on_while_groups_and_topics_come_and_go(offsets):
    for group in ("a", "b"):
        for topic in ("Orders", "Payments"):
            offsets.commit(group, topic, 0, 1)
    seen = []
    for key, _ in offsets.rows():
        seen.append(key)
        offsets.commit(f"new {len(seen)}", "Orders", 0, 1)
        offsets.delete_topic("Payments")
    assert {"Orders@a", "Orders@b"} <= set(seen) <= {"Orders@a", "Payments@a", "Orders@b", "Payments@b"}
