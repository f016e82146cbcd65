"""What follows from what, of signs as doctor and the console find them."""

import pytest

from sparrowmq.admin.findings import DIED, HEADLESS, NO_ANSWER, Sign, causes, trees

MASTER, SLAVE = "h:1", "h:2"


def sign(name, address=MASTER, what="", told="", broker="a"):
    return Sign(name, broker, address, address != SLAVE, what, told)


def test_a_full_disk_of_a_slave_comes_first_and_everything_else_follows_from_it():
    signs = [
        sign("no_slave"),
        sign("slave_gone", told="no_slave"),
        sign("master_not_followed", SLAVE, told="disk_full"),
        sign("disk_full", SLAVE),
        sign("drained", "h:9", broker="b"),
        sign("index_incomplete", SLAVE, told="disk_full"),
    ]
    assert causes(signs) == [2, 0, 3, None, None, 3]
    assert list(trees(causes(signs))) == [[3, 2, 0, 1, 5], [4]]


@pytest.mark.parametrize("effect", ["no_slave", "slave_gone", "slave_behind"])
@pytest.mark.parametrize("cause", [NO_ANSWER, DIED, "disk_full", "store_failed", "disk_hangs", "process_paused"])
def test_what_a_master_lacks_follows_from_its_slave_and_no_other_broker(effect, cause):
    assert causes([sign(effect), sign(cause, SLAVE)]) == [1, None]
    assert causes([sign(effect), sign(cause, SLAVE, broker="b")]) == [None, None]
    assert causes([sign(effect), sign(cause)]) == [None, None]


@pytest.mark.parametrize("cause", [NO_ANSWER, DIED, HEADLESS, "log_damaged"])
def test_a_slave_that_follows_no_master_follows_from_its_master_and_no_other_slave(cause):
    assert causes([sign("master_not_followed", SLAVE), sign(cause)]) == [1, None]
    other = Sign(cause, "a", "h:3", False, "")
    assert causes([sign("master_not_followed", SLAVE), other]) == [None, None]


def test_a_group_without_a_master_follows_from_the_member_that_is_away():
    signs = [sign(HEADLESS, ""), sign("no_master", SLAVE), sign(NO_ANSWER, "h:3")]
    assert causes(signs) == [2, 2, None]
    assert causes(signs[:2]) == [1, None]


def test_a_missing_name_server_follows_from_the_one_that_does_not_answer():
    away = sign("name_server_away", what="h:9876: refused")
    assert causes([away, sign(NO_ANSWER, "h:9876", broker="")]) == [1, None]
    assert causes([away, sign(NO_ANSWER, "h:9877", broker="")]) == [None, None]


def test_a_clock_that_is_wrong_is_one_cause_and_not_that_of_another_server():
    assert causes([sign("clock"), sign("clock_wrong")]) == [1, None]
    assert causes([sign("clock"), sign("clock_wrong", SLAVE)]) == [None, None]


def test_what_servers_say_in_a_circle_shows_all_the_same():
    circle = [sign("a", told="b"), sign("b", told="c"), sign("c", told="b"), sign("d", told="d")]
    assert causes(circle) == [1, None, 1, None]
    assert sorted(at for tree in trees(causes(circle)) for at in tree) == [0, 1, 2, 3]
