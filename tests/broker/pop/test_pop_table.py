"""The pop state of all groups, made of steps."""

from sparrowmq.broker.pop.pop_queue import PopTable
from sparrowmq.broker.pop.pop_steps import Dropped, PopStep, RestartStep, encoded


def full():
    table = PopTable()
    for topic, group in (("a", "g"), ("a", "h"), ("b", "g")):
        table.apply(RestartStep(topic, group, 0, 5))
    return table


def test_steps_go_to_their_queue():
    table = full()
    (piece,) = encoded([PopStep("a", "g", 0, [5, 2], 7, 1, 2, 3, 1), RestartStep("a", "g", 1, 0)])
    table.apply_all(piece)
    assert table.get("a", "g", 0).count == 2
    assert table.get("a", "h", 0).count == 0
    assert table.get("a", "g", 1).next_offset == 0
    assert table.get("a", "g", 2) is None and table.get("c", "g", 0) is None


def test_deleted_topics_and_groups_and_queues_are_forgotten():
    table = full()
    table.drop_topic("b")
    assert {(queue.topic, queue.group) for queue in table} == {("a", "g"), ("a", "h")}
    table.drop_group("g")
    assert [queue.group for queue in table] == ["h"]
    table.apply(Dropped("a", "h", 0))
    assert table.groups == {}
