"""kernel/messages.py: what a queue commits while its messages are settled in any order, in any thread."""

from __future__ import annotations

from threading import Thread, get_ident

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel.messages import (
    DeliveredMessage,
    DoneCount,
    HomeThread,
    UnsettledMessages,
    ack_at_once,
    deliver,
    receive,
)
from tests import records


class Long(DeliveredMessage):
    """A message that notes what it was settled by the long way."""

    __slots__ = ("took_long_way",)

    def _ack_by(self, settle: object) -> None:
        self.took_long_way = settle


def delivered(count: int) -> tuple[UnsettledMessages, list[Long]]:
    messages: list[Long] = []
    content = b"".join(records.encoded(body=b"x" * number, queue_offset=10 * number) for number in range(count))
    assert receive(Long, content, messages, []) is None
    queue = UnsettledMessages(10 * count, DoneCount())
    queue.home = HomeThread()
    queue.home.thread = get_ident()
    queue.add(messages)
    deliver(messages, "queue", "settle", "owner", "")
    return queue, messages


@given(st.integers(0, 9), st.data())
def test_the_first_unsettled_message_is_what_is_committed(count, data):
    queue, messages = delivered(count)
    left = {message.offset: message for message in messages}
    while left:
        chosen = data.draw(st.lists(st.sampled_from(list(left.values())), min_size=1, max_size=3))
        if data.draw(st.booleans()):
            assert ack_at_once(chosen) == []
        else:
            for message in chosen:
                message.ack()
        for message in chosen:
            left.pop(message.offset, None)
            assert not message.is_unsettled
        assert queue.unsettled_messages == list(left.values())
        assert queue.commit_offset == min(left, default=queue.next_offset)
        assert queue.last_unsettled_offset == max(left, default=queue.next_offset)
        assert (queue.unsettled_count, queue.stats.done) == (len(left), count - len(left))
        assert queue.unsettled_bytes == sum(message.store_size for message in left.values())


def test_only_its_thread_settles_at_once_and_only_while_nothing_forbids_it():
    queue, messages = delivered(4)
    queue.is_watched = True
    messages[0].ack()
    queue.is_watched, queue.is_owned = False, False
    messages[1].ack()
    queue.is_owned = True
    other = Thread(target=messages[2].ack)
    other.start()
    other.join()
    assert [message.took_long_way for message in messages[:3]] == ["settle"] * 3
    queue.home = None
    assert ack_at_once(messages) == messages[3:] and messages[3].is_unsettled
    assert (queue.unsettled_count, queue.stats.done) == (4, 0)


def test_a_message_of_another_queue_is_not_taken_out():
    queue, messages = delivered(2)
    other, others = delivered(1)
    assert queue.remove_all([*others, *messages[:1], *messages[:1]]) == 1
    assert (queue.unsettled_count, other.unsettled_count) == (1, 1)
