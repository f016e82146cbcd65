"""sparrowmq.cli.bench: figures of a run, by a clock that is turned by hand."""

import pytest

from sparrowmq.cli.bench import Tally, name_of
from sparrowmq.errors import RemoteError, RequestTimeout, SendFailed
from sparrowmq.testing.clock import ManualClock


def row(tally):
    heads, (cells,) = tally.figures
    return dict(zip(heads, cells, strict=True))


async def test_figures_are_of_the_time_until_the_last_message():
    clock = ManualClock()
    tally = Tally(clock)
    await clock.advance(2)
    tally.add(3000, 1_500_000, 1000)
    tally.add(1000, 500_000, 40_000)
    await clock.advance(8)
    found = row(tally)
    assert (found["MESSAGES"], found["SECONDS"], found["MESSAGES/S"], found["MB/S"]) == (4000, 2, 2000, 1)
    assert 1 <= found["P50 MS"] <= 1.125 and found["P99 MS"] == found["GREATEST MS"] == 40
    assert found["FAILED"] == 0 and list(tally.errors[1]) == []


def test_a_run_of_nothing_has_no_times():
    found = row(Tally(ManualClock()))
    assert (found["MESSAGES"], found["MESSAGES/S"], found["P50 MS"], found["GREATEST MS"]) == (
        0,
        0,
        None,
        None,
    )


def test_failures_are_counted_by_what_they_are_called_with_what_the_first_one_said():
    tally = Tally(ManualClock())
    tally.fail(RemoteError(14, "disk full"))
    for text in ("one", "two"):
        tally.fail("FLUSH_DISK_TIMEOUT", text, count=2)
    assert tally.failed_count == 5
    assert [each[:2] for each in tally.errors[1]] == [("FLUSH_DISK_TIMEOUT", 4), ("RemoteError 14", 1)]
    assert [each[2] for each in tally.errors[1]] == ["one", "the peer answered with code 14: disk full"]


@pytest.mark.parametrize(
    ("cause", "name"),
    [
        (RemoteError(2), "RemoteError 2"),
        (RequestTimeout("a:1", "it", 3), "RequestTimeout"),
        (None, "SendFailed"),
    ],
)
def test_a_failed_send_is_called_by_its_cause(cause, name):
    error = SendFailed("no attempt was acknowledged", cause=cause)
    assert name_of(error) == name


async def test_a_line_each_second_is_of_that_second_alone():
    clock = ManualClock()
    lines: list[str] = []
    tally = Tally(clock)
    with tally.reporting("sent", lines.append):
        tally.add(500, 1_000_000, 2000)
        await clock.advance(1)
        tally.fail("RequestTimeout")
        await clock.advance(1)
    await clock.advance(5)
    first, second = (" ".join(line.split()) for line in lines)
    assert first == "1 s 500 sent/s 1.00 MB/s mean 2.00 ms greatest 2.00 ms 0 failed"
    assert second == "2 s 0 sent/s 0.00 MB/s no times 1 failed"
