from sparrowmq.store.queues.queue_ends import Positions, merge_positions


def test_of_two_copies_the_lower_place_counts_and_all_that_was_on_disk():
    behind, ahead = Positions(0, 150, 100, 7, 8), Positions(50, 200, 200, 9, 10)
    assert merge_positions(behind, ahead) == merge_positions(ahead, behind) == Positions(0, 200, 100, 7, 8)


def test_a_copy_that_is_missing_says_nothing():
    found = Positions(0, 150, 100)
    assert merge_positions(found, None) == merge_positions(None, found) == found
    assert merge_positions(None, None) is None
