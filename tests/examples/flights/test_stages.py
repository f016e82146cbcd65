import pytest

from examples.flights.stages import Stage, Stages


@pytest.fixture
def at(monkeypatch):
    """Sets the time that stages see."""
    now = [100.0]
    monkeypatch.setattr("examples.flights.stages.time.monotonic", lambda: now[0])

    def at(seconds: float) -> None:
        now[0] = 100.0 + seconds

    return at


def test_a_stage_counts_from_its_beginning_to_its_last_message(at):
    stage = Stage("sent")
    stage.begin()
    at(2)
    stage.reach(500)
    at(9)
    stage.size_bytes = 4_000_000
    assert stage.seconds == 2
    assert stage.report() == {
        "messages": 500,
        "seconds": 2.0,
        "messages_per_s": 250,
        "megabytes_per_s": 2.0,
    }


def test_looking_again_without_progress_does_not_slow_it_down(at):
    stage = Stage("sent")
    stage.begin()
    at(1)
    stage.reach(10)
    at(5)
    stage.reach(10)
    assert stage.messages_per_s == 10


def test_the_first_message_begins_a_stage_that_nobody_began(at):
    stage = Stage("results")
    at(7)
    stage.reach(1)
    at(8)
    stage.reach(3)
    assert stage.seconds == 1


def test_a_stage_without_messages_has_no_rate():
    assert Stage("idle").report() == {
        "messages": 0,
        "seconds": 0.0,
        "messages_per_s": 0,
        "megabytes_per_s": 0.0,
    }


def test_the_stages_are_in_the_order_of_a_messages_way():
    assert list(Stages().all()) == ["replay", "table", "statistics", "results"]
