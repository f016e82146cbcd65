"""What follows from epochs and where they began: who may lead, and up to where two logs are the same."""

from pathlib import Path

import pytest

from sparrowmq.broker.failover.group_state import MOST_EPOCHS, GroupState, Leader, elected, with_in_sync
from sparrowmq.broker.failover.own_epoch import OwnEpoch


def state(*begins, in_sync=(1, 2), line="a"):
    return GroupState(epoch=begins[-1][0], line=line, leader=1, in_sync=in_sync, begins=begins)


def own(epoch: int, line: str = "a", store: str = "mine") -> OwnEpoch:
    return OwnEpoch(Path("epoch.json"), epoch, line, store)


@pytest.mark.parametrize(
    ("begins", "own_epoch", "common"),
    [
        ([(1, 0)], 1, None),  # it is of the epoch that goes on
        ([(1, 0), (2, 700)], 1, 700),
        ([(1, 0), (2, 700)], 2, None),
        ([(1, 0), (2, 700), (3, 900)], 1, 700),
        ([(1, 0), (2, 700), (3, 900)], 2, 900),
        ([(1, 0), (2, 700), (3, 600)], 1, 600),  # the one of epoch 2 lost a part
        ([(1, 0), (2, 700)], 0, None),  # never part of one
        ([(1, 0), (2, 700)], 3, None),  # of one that nobody knows
        ([(5, 800), (6, 900)], 5, 900),
        ([(5, 800), (6, 900)], 4, None),  # what was between is forgotten
    ],
)
def test_what_was_of_an_epoch_is_everybodys_up_to_where_a_later_one_began(begins, own_epoch, common):
    assert state(*begins).shared_end(own_epoch, "a") == common


@pytest.mark.guards("GroupState.shared_end: is_known = epoch >= self.begins[0][0]")
def test_epochs_of_another_line_prove_nothing():
    assert state((1, 0), (2, 700), line="b").shared_end(1, "a") is None


def test_who_is_in_sync_may_lead_and_who_was_just_started_lets_others_go_first():
    both, alone = state((1, 0)), state((1, 0), in_sync=(1,))
    assert both.may_lead(1, is_fresh=False) and both.may_lead(2, is_fresh=False)
    assert not both.may_lead(3, is_fresh=False)
    assert not both.may_lead(1, is_fresh=True)
    assert alone.may_lead(1, is_fresh=True) and not alone.may_lead(2, is_fresh=False)


@pytest.mark.parametrize(
    ("has", "end", "doubt"),
    [
        (own(2), 700, None),
        (own(3), 900, None),  # etcd forgot the last epoch, and we did not
        (own(0, ""), 0, "its log never was part of one"),  # a disk that is new, or not there
        (own(1), 900, "its log was last part of epoch 1"),  # a store of before
        (own(2, "b"), 900, "its log was last part of epoch 2"),
        (own(2), 699, "its log ends at 699, and that epoch began at 700"),
    ],
)
def test_a_store_that_is_not_the_one_that_was_in_sync_is_told(has, end, doubt):
    found = state((1, 0), (2, 700)).doubt(2, has, end)
    assert found is None if doubt is None else found.startswith(doubt)


def test_who_was_elected_and_died_before_it_wrote_that_down_is_known_by_the_mark_of_its_store():
    first = elected(None, 1, own(0, ""), end=40)
    assert first.doubt(1, own(0, ""), 40) is None
    assert first.doubt(1, own(0, "", "another"), 40) is not None
    assert first.doubt(2, own(0, ""), 40) is not None
    assert first.doubt(1, own(0, ""), 39) is not None
    before = GroupState.decode(
        first.encode().replace(b',"store":"mine"', b"")
    )  # of a version that wrote no mark
    assert before.doubt(1, own(1, first.line), 40) is None and before.doubt(1, own(0, ""), 40) is not None


def test_an_election_begins_an_epoch_at_the_end_of_the_log_with_the_master_alone_in_sync():
    first = elected(None, 2, own(0), end=40)
    assert (first.epoch, first.leader, first.in_sync, first.begins) == (1, 2, (2,), ((1, 40),))
    second = elected(with_in_sync(first, {3, 2}), 3, own(1), end=90)
    assert (second.epoch, second.leader, second.in_sync, second.begins) == (2, 3, (3,), ((1, 40), (2, 90)))
    assert second.line == first.line != elected(None, 2, own(0), 40).line


def test_after_etcd_lost_its_memory_no_epoch_comes_again():
    assert elected(None, 1, own(7), end=10).epoch == 8


def test_only_the_newest_epochs_are_kept():
    found = state((1, 0))
    for number in range(2, MOST_EPOCHS + 10):
        found = elected(found, 1, own(0), number)
    assert len(found.begins) == MOST_EPOCHS and found.begins[-1] == (found.epoch, MOST_EPOCHS + 9)


def test_both_come_back_from_their_bytes_and_unknown_fields_are_passed_over():
    leader = Leader(member=2, epoch=3, store="s", address="a:1", shipping="a:2")
    assert Leader.decode(leader.encode()) == leader
    found = state((1, 0), (2, 5))
    assert GroupState.decode(found.encode()) == found
    assert GroupState.decode(found.encode()[:-1] + b',"later":1}') == found
