"""The plan of what to ask about and up to where all has ended; no disk, no clock."""

from sparrowmq.broker.transactions.open_transactions import OpenTransactions, Transaction


def opened(*queue_offsets, due_ms=100):
    found = OpenTransactions()
    for queue_offset in queue_offsets:
        found.add(Transaction(queue_offset, 1000 + queue_offset, due_ms + queue_offset, 0, 300))
    return found


def numbers(transactions):
    return [each.queue_offset for each in transactions]


def end(found, queue_offset):
    found.end(found.find(queue_offset))


def test_what_is_due_comes_in_the_order_of_its_times_and_once():
    found = OpenTransactions()
    for queue_offset, due_ms in enumerate((30, 10, 20, 99)):
        found.add(Transaction(queue_offset, 0, due_ms, 0, 300))
    assert numbers(found.take_due(50, 2)) == [1, 2]
    assert numbers(found.take_due(50, 2)) == [0]
    assert numbers(found.take_due(50, 2)) == []


def test_what_has_ended_or_moved_is_not_due_any_more():
    found = opened(0, 1, 2)
    end(found, 0)
    found.move(found.find(1), 3, 1003, 500, 310)
    assert numbers(found.take_due(200, 9)) == [2]
    assert numbers(found.take_due(500, 9)) == [3]


def test_what_is_put_off_before_anybody_looked_is_due_once():
    found = opened(0, 1)
    found.postpone(found.find(0), 150)
    assert numbers(found.take_due(200, 9)) == [1, 0]
    assert numbers(found.take_due(200, 9)) == []


def test_what_is_put_off_is_due_at_its_new_time_alone():
    found = opened(0)
    assert numbers(found.take_due(0, 9)) == []
    found.postpone(found.find(0), 300)
    assert numbers(found.take_due(299, 9)) == []
    assert numbers(found.take_due(300, 9)) == [0]


def test_each_copy_stands_for_its_transaction_until_that_ends():
    found = opened(0)
    transaction = found.find(0)
    found.move(transaction, 5, 1005, 200, 310)
    found.move(transaction, 9, 1009, 300, 310)
    assert [found.find(number) for number in (0, 5, 9)] == [transaction] * 3
    assert (transaction.origin, transaction.older, len(found)) == (0, (0, 5), 1)
    end(found, 5)
    assert [found.find(number) for number in (0, 5, 9)] == [None] * 3 and len(found) == 0


def test_the_half_position_is_the_first_newest_copy_of_an_open_one():
    found = opened(0, 1, 2)
    assert found.positions(3)[0] == 0
    end(found, 1)
    assert found.positions(3)[0] == 0
    found.move(found.find(0), 3, 1003, 500, 310)
    assert found.positions(4)[0] == 2
    end(found, 2)
    end(found, 3)
    assert found.positions(4)[0] == 4


def test_the_op_position_passes_a_record_when_all_that_it_names_is_passed():
    found = opened(0, 1, 2)
    end(found, 2)
    end(found, 0)
    assert found.positions(3) == (1, 0)  # the first record names 2, which is not passed
    end(found, 1)
    assert found.positions(3) == (3, 3)


def test_many_that_end_before_they_are_due_leave_nothing_behind():
    found = OpenTransactions()
    for queue_offset in range(50_000):
        found.add(Transaction(queue_offset, 0, 1_000_000, 0, 300))
        end(found, queue_offset)
    assert len(found._due_heap) + len(found._unscheduled) < 2000
    assert found.positions(50_000) == (50_000, 50_000)


def test_the_longest_asked_is_the_one_whose_producers_could_be_asked_first():
    found = OpenTransactions()
    assert found.longest_asked() is None
    for queue_offset, (begun_ms, immune_until_ms) in enumerate(((30, 0), (10, 0), (20, 0), (5, 90))):
        found.add(Transaction(queue_offset, 0, 100 + queue_offset, immune_until_ms, 300, begun_ms=begun_ms))
    for first in (1, 2, 0, 3):
        assert found.longest_asked() is found.find(first)
        end(found, first)
