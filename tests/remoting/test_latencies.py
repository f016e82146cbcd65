"""How long requests took is counted by their codes, and the slow ones are told, a line at a time."""

import pytest

from sparrowmq.core.logs import LogSettings
from sparrowmq.remoting.latencies import SILENCE_S, Latencies, name_of

SEND, PULL, UNKNOWN = 310, 11, 4_711


@pytest.fixture
def latencies() -> Latencies:
    return Latencies(slow_s=1.0)


def test_requests_are_counted_by_their_code_their_answers_code_and_whether_they_were_held(
    latencies: Latencies,
) -> None:
    latencies.add(SEND, 0, 0.0005, times=1000)
    latencies.add(SEND, 10, 0.002)
    latencies.add(PULL, 19, 15.0, was_held=True)
    latencies.add(PULL, 0, 0.001)
    counted = {(code, response, held): (seen.count, seen.total) for code, response, held, seen in latencies.kinds()}
    assert counted == {
        (SEND, 0, False): (1000, 500_000),
        (SEND, 10, False): (1, 2000),
        (PULL, 19, True): (1, 15_000_000),
        (PULL, 0, False): (1, 1000),
    }


@pytest.mark.parametrize(("took_s", "held", "is_slow"), [(0.999, False, False), (1.0, False, True), (9.0, True, False)])
def test_slow_is_what_took_as_long_as_was_said_unless_it_was_held(
    latencies: Latencies, took_s: float, held: bool, is_slow: bool
) -> None:
    assert latencies.add(SEND, 0, took_s, was_held=held) is is_slow


def test_nothing_is_slow_where_nothing_shall_be(latencies: Latencies) -> None:
    latencies.apply_settings(LogSettings(slow_request_ms=0))
    assert not latencies.add(SEND, 0, 1e6)
    latencies.apply_settings(LogSettings(slow_request_ms=500))
    assert latencies.add(SEND, 0, 0.5)


def test_a_slow_request_is_told_with_what_it_took_in_each_room_where_it_was(
    latencies: Latencies, caplog: pytest.LogCaptureFixture
) -> None:
    rooms = [("handled", 10.002), ("written", 10.002), ("until it was safe", 11.5)]
    latencies.log_slow(SEND, "10.0.0.1:4711", 10.0, rooms)
    assert caplog.messages == [
        "slow request SEND_MESSAGE_V2 of 10.0.0.1:4711 took 1,500.0 ms (2.0 ms handled, 1,498.0 ms until it was safe)"
    ]


def test_of_one_code_one_line_is_told_in_a_second_and_how_many_there_were(
    latencies: Latencies, caplog: pytest.LogCaptureFixture
) -> None:
    for end, times in ((10.0, 1), (10.0 + SILENCE_S / 2, 5), (10.0 + SILENCE_S, 3)):
        latencies.log_slow(SEND, "peer", end - 2, [("handled", end)], times)
    latencies.log_slow(PULL, "peer", 8.0, [("handled", 10.0)])
    assert [line.partition(")")[2] for line in caplog.messages] == ["", "; and 7 more like it", ""]


def test_a_code_has_a_name_also_where_it_has_none() -> None:
    assert (name_of(SEND), name_of(UNKNOWN)) == ("SEND_MESSAGE_V2", f"code {UNKNOWN}")
