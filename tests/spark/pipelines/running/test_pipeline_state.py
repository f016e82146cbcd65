"""sparrowmq.spark.pipelines.running.pipeline_state: what a pipeline keeps between its runs."""

import json

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import BadStore, ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.pipelines.running.pipeline_state import State
from sparrowmq.spark.source.partition_ranges import Offsets

PAIRS = {MessageQueue("a", "x", 0): MessageQueue("b", "y", 1)}


def test_what_was_settled_is_there_again_and_nothing_is_written_before(tmp_path):
    state = State(tmp_path / "s", {"topic": "a"})
    assert not (tmp_path / "s").exists()
    state.keep_targets(PAIRS)
    again = State(tmp_path / "s", {"topic": "a"})
    assert (again.label, again.targets) == (state.label, PAIRS)
    assert State(tmp_path / "other", {"topic": "a"}).label != state.label


def test_a_cluster_may_have_other_name_servers_if_one_of_the_old_is_named_beside_them_once(tmp_path):
    def state(source, target="c:1"):
        return State(tmp_path, {"topic": "a", "from": source, "to": target})

    state("a:1;b:1").keep_targets(PAIRS)
    label = state("b:1;a:1").label
    with pytest.raises(ConfigError, match=r"was begun with the name servers a:1;b:1, not d:1.* once, as d:1;a:1; for"):
        state("d:1")
    state("b:1;d:1").keep_targets(PAIRS)
    moved = state("d:1")
    moved.keep_targets(PAIRS)
    assert (moved.label, moved.targets) == (label, PAIRS)
    with pytest.raises(ConfigError, match="name servers c:1, not d:1"):
        state("d:1", "d:1")


def test_floors_are_those_of_the_first_time_that_a_batch_was_begun(tmp_path):
    one, other = MessageQueue("b", "y", 1), MessageQueue("b", "z", 0)

    def floors(batch, ends):
        state = State(tmp_path, {"topic": "a"})
        state.keep_targets(PAIRS | {MessageQueue("a", "x", 1): other})
        return state.floors(batch, lambda _: Offsets(ends))

    assert floors(0, {one: 10}) == {one: 10, other: 0}  # the other's broker is away
    assert floors(0, {one: 20, other: 20}) == {one: 10, other: 0}
    assert floors(1, {one: 30, other: 5}) == {one: 30, other: 5}
    assert floors(2, {one: 40}) == {one: 40, other: 5}
    assert floors(2, {one: 50, other: 50}) == {one: 40, other: 5}


@pytest.mark.parametrize(
    ("what", "last", "again"),
    [("lost", 0, 0), ("lost", 2, 2), ("older", 2, 2), ("damaged", 2, 2), ("newer", 2, 1), ("whole", 2, 2)],
)
def test_copies_are_looked_for_everywhere_if_it_is_not_known_where_a_batch_began(tmp_path, caplog, what, last, again):
    """Others may have written any number of messages behind the copies of a batch that is repeated."""
    (target,) = PAIRS.values()
    file, noted = tmp_path / "begun.json", list[bytes]()
    State(tmp_path, {"topic": "a"}).keep_targets(PAIRS)

    def begin(batch, end):
        return State(tmp_path, {"topic": "a"}).floors(batch, lambda _: Offsets({target: end}))

    for batch in range(last + 1):
        begin(batch, 10 * batch)
        noted.append(file.read_bytes())
    if what == "lost":
        for each in tmp_path.glob("begun.json*"):
            each.unlink()
    elif what == "older":
        file.write_bytes(noted[0])
    elif what == "damaged":
        file.write_bytes(noted[-1].replace(b"20", b"21"))
    assert begin(again, 90) == {target: 20 if what == "whole" else 0}
    assert ("begun.json is damaged, gone, or does not match the checkpoint" in caplog.text) == (what != "whole")
    assert begin(again + 1, 95) == {target: 95}


def test_a_target_that_was_made_again_is_noticed_until_a_batch_is_begun_with_it(tmp_path):
    target, part = next(iter(PAIRS.values())), ("b", "y")
    state = State(tmp_path, {"topic": "a"})
    state.keep_targets(PAIRS)

    def made_again(incarnation):
        return State(tmp_path, {"topic": "a"}).recreated_targets(Offsets({}, {part: incarnation}))

    assert made_again(7) == []
    state.floors(0, lambda _: Offsets({target: 10}, {part: 7}))
    state.floors(1, lambda _: Offsets({}))  # its broker is away
    assert (made_again(7), made_again(9)) == ([], [part])
    state.floors(2, lambda _: Offsets({target: 1}, {part: 9}))
    assert (made_again(7), made_again(9)) == ([part], [])


def test_a_batch_may_be_planned_again_until_the_next_one_is_begun(tmp_path):
    state = State(tmp_path, {"topic": "a"})
    state.keep_targets(PAIRS)
    assert state.may_plan_again(0)
    state.floors(3, lambda _: Offsets())
    assert [state.may_plan_again(batch) for batch in (2, 3, 4)] == [False, True, True]


def test_the_begin_is_there_again(tmp_path):
    state, begin = State(tmp_path, {"topic": "a"}), {"a": {"x": {"0": 7}}}
    assert state.begin is None
    state.keep_begin(begin)
    assert State(tmp_path, {"topic": "a"}).begin == begin


def test_of_two_first_starts_at_the_same_time_one_is_refused(tmp_path):
    """The copies of each have a mark of their own, so a run with the other mark would copy all again."""
    one, other = State(tmp_path, {"topic": "a"}), State(tmp_path, {"topic": "a"})
    one.keep_targets(PAIRS)
    with pytest.raises(ConfigError, match=r"another run has begun the pipeline .* at the same time; start this"):
        other.keep_targets(PAIRS)
    assert State(tmp_path, {"topic": "a"}).label == one.label


def test_a_mark_with_a_changed_byte_is_noticed(tmp_path):
    """A pipeline with another mark does not find its copies, and would copy messages twice."""
    state = State(tmp_path, {"topic": "a"})
    state.keep_targets(PAIRS)
    changed = f"{state.label[:-1]}{'b' if state.label.endswith('a') else 'a'}"
    file = tmp_path / "pipeline.json"
    file.write_text(file.read_text().replace(state.label, changed))
    with pytest.raises(BadStore, match=r"pipeline.json is damaged or gone, .* restore it from a backup"):
        State(tmp_path, {"topic": "a"})


def test_the_file_of_an_earlier_release_has_no_checksum_and_is_read(tmp_path):
    state = State(tmp_path, {"topic": "a"})
    state.keep_targets(PAIRS)
    kept = json.loads((tmp_path / "pipeline.json").read_text())
    del kept["checksum"]
    (tmp_path / "pipeline.json").write_text(json.dumps(kept, indent=1))
    assert State(tmp_path, {"topic": "a"}).label == state.label


@pytest.mark.parametrize("content", [b"", b'{"settled": {"to', b"{}", b"[]", b"5", b"\xff"])
def test_a_damaged_state_is_told(tmp_path, content):
    State(tmp_path, {"topic": "a"}).keep_targets(PAIRS)
    (tmp_path / "pipeline.json").write_bytes(content)
    with pytest.raises(BadStore, match=r"pipeline.json is damaged or gone, .* restore it from a backup"):
        State(tmp_path, {"topic": "a"})


@pytest.mark.parametrize("left", ["begun.json", "checkpoint/offsets/0"])
def test_a_state_whose_mark_is_gone_is_told(tmp_path, left):
    (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / left).touch()
    with pytest.raises(BadStore, match=r"pipeline.json is damaged or gone, .* restore it from a backup"):
        State(tmp_path, {"topic": "a"})


def test_the_folder_of_another_pipeline_is_refused(tmp_path):
    State(tmp_path, {"topic": "a"}).keep_targets(PAIRS)
    with pytest.raises(ConfigError, match="begun with topic 'a', not 'b'; name another folder"):
        State(tmp_path, {"topic": "b"})


def test_a_topic_that_was_made_again_is_known_after_a_restart(tmp_path):
    named, counted = ("orders", "a"), ("orders", "apache")

    def made_again(incarnations):
        return State(tmp_path, {"topic": "a"}).recreated(incarnations)

    assert made_again({}) == {}
    assert made_again({named: 7_000}) == {}, "the first one"
    assert made_again({named: 7_000, counted: -1}) == {counted: -1}
    assert made_again({named: 9_000, counted: -2}) == {named: 9_000, counted: -2}
    assert made_again({named: 7_000, counted: 5_000}) == {counted: 5_000}
