"""What follows from epochs and where they began: who may lead, and up to where two logs are the same."""

import random
from pathlib import Path

import pytest

from sparrowmq.broker.failover.group_state import (
    MOST_EPOCHS,
    GroupState,
    Leader,
    OwnEpoch,
    elected,
    with_in_sync,
    with_successor,
)
from tests.broker.failover.group_model import Group


def state(*begins, in_sync=(1, 2), line="a"):
    return GroupState(epoch=begins[-1][0], line=line, leader=1, in_sync=in_sync, begins=begins)


def own(epoch: int, line: str = "a", store: str = "mine") -> OwnEpoch:
    return OwnEpoch(Path("epoch.json"), epoch, line, store, epochs=(epoch,) if epoch else ())


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
    old = first.encode().replace(b',"store":"mine"', b"").replace(b',"settled":0', b"")
    before = GroupState.decode(old)  # of a version that wrote neither
    assert before.settled is None and before.is_settled
    assert before.doubt(1, own(1, first.line), 40) is None and before.doubt(1, own(0, ""), 40) is not None


def test_an_election_begins_an_epoch_at_the_end_of_the_log_and_takes_nobodys_right_to_lead():
    first = elected(None, 2, own(0), end=40)
    assert (first.epoch, first.leader, first.in_sync, first.begins) == (1, 2, (2,), ((1, 40),))
    assert not first.is_settled
    settled = with_in_sync(first, {3, 2})
    assert settled.is_settled and settled.in_sync == (2, 3)
    second = elected(settled, 3, own(1, first.line), end=90)
    assert (second.epoch, second.leader, second.begins) == (2, 3, ((1, 40), (2, 90)))
    assert (second.in_sync, second.settled, second.is_settled) == ((2, 3), 1, False)
    assert second.line == first.line != elected(None, 2, own(0), 40).line


def test_an_epoch_begins_where_one_began_that_its_master_was_no_part_of():
    settled = state((1, 0), in_sync=(1, 2, 3))
    second = elected(settled, 1, own(1), end=1000)  # and it appends up to 1050 before it dies
    third = elected(second, 2, own(1), end=1100)  # bytes of epoch 1 that were never acknowledged
    assert third.begins == ((1, 0), (3, 1000))
    assert third.shared_end(2, "a") == 1000  # not 1100: the first member has others from 1000 on
    assert third.shared_end(1, "a") == 1000
    assert third.in_sync == (1, 2, 3) and third.settled == 1


def test_a_member_in_sync_leads_after_epochs_that_were_not_settled_and_another_store_does_not():
    settled = state((1, 0), in_sync=(1, 2, 3))
    second = elected(settled, 1, own(1), end=1000)
    part_of_both = own(2)
    part_of_both.epochs = (1, 2)
    for has, end in ((own(1), 900), (part_of_both, 950)):  # both have all that was acknowledged
        assert second.doubt(2, has, end) is None
    assert second.doubt(2, own(0, ""), 0) is not None  # a new disk
    assert second.doubt(2, own(2), 1000) is not None  # likewise, though it follows the new master
    third = elected(second, 3, own(1), end=990)
    assert third.doubt(2, part_of_both, 950) is None and third.doubt(2, own(2), 1000) is not None


def test_elections_without_an_append_do_not_push_out_begins():
    found = with_in_sync(elected(state((1, 0), (4, 50)), 1, own(4), 70), {1, 2})
    for number in range(2 * MOST_EPOCHS):
        found = elected(found, number % 2 + 1, own(found.epoch), 90)
    assert found.begins == ((1, 0), (4, 50), (5, 70), (found.epoch, 90))
    assert found.shared_end(4, "a") == 70 and found.shared_end(5, "a") == found.shared_end(6, "a") == 90


def test_a_master_that_handed_over_and_goes_on_is_waited_for():
    settled = state((1, 0))
    assert settled.away == with_successor(settled, 2, stays=False).away == {1}
    given = with_successor(settled, 2, stays=True)
    assert (given.successor, given.away, given.is_settled) == (2, frozenset(), True)
    assert elected(given, 2, own(1), 5).successor == 0


def test_after_etcd_lost_its_memory_no_epoch_comes_again():
    assert elected(None, 1, own(7), end=10).epoch == 8


def test_only_the_newest_epochs_are_kept():
    found = state((1, 0))
    for number in range(2, MOST_EPOCHS + 10):
        found = elected(found, 1, own(number - 1), number)
    assert len(found.begins) == MOST_EPOCHS and found.begins[-1] == (found.epoch, MOST_EPOCHS + 9)


def test_both_come_back_from_their_bytes_and_unknown_fields_are_passed_over():
    leader = Leader(member=2, epoch=3, store="s", address="a:1", shipping="a:2")
    assert Leader.decode(leader.encode()) == leader
    found = state((1, 0), (2, 5))
    assert GroupState.decode(found.encode()) == found
    assert GroupState.decode(found.encode()[:-1] + b',"later":1}') == found


def history(seed: int, steps: int = 400) -> Group:
    chance = random.Random(seed)
    group = Group(chance, chance.randint(2, 5))
    for _ in range(steps):
        group.step()
        group.check()
    return group


def test_random_histories_lose_nothing_and_each_member_in_sync_may_lead() -> None:
    first = random.randrange(1 << 32)
    elections = acknowledged = 0
    for seed in range(first, first + 600):
        try:
            group = history(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        elections += group.elections
        acknowledged += len(group.acknowledged)
    assert elections > 1000 and acknowledged > 2000, (elections, acknowledged)
