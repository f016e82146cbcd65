import logging
from datetime import date, datetime, timedelta

from sparrowmq.console.history import STEP_S, History
from sparrowmq.testing import ManualClock

DAY = date(2026, 11, 20)
MORNING_MS = int(datetime(2026, 11, 20, 8, 0).timestamp() * 1000)


def clock_at(time_ms=MORNING_MS):
    return ManualClock(now_ms=time_ms)


async def step(history, clock, kind="topic", **rates):
    """One step of five minutes in which these were noted."""
    history.note(kind, rates)
    await clock.advance(STEP_S)
    await history.close_step()


def rates_of(history, name, kind="topic", day=DAY):
    return [rate for _, rate in history.points(kind, name, day)]


async def test_a_step_has_the_mean_of_what_was_noted_in_it():
    clock = clock_at()
    history = History(clock)
    for rate in (1.0, 2.0, 6.0):
        history.note("in", {"broker-a": rate})
        await clock.advance(60)
    assert history.points("in", "broker-a", DAY) == [(MORNING_MS, 3.0)], "of the step that is not over, too"
    await clock.advance(180)
    await history.close_step()
    assert history.points("in", "broker-a", DAY) == [(MORNING_MS, 3.0)]


async def test_who_is_not_named_took_nothing_and_where_nobody_looked_a_line_is_broken():
    clock = clock_at()
    history = History(clock)
    await step(history, clock, orders=5.0)
    await step(history, clock, payments=1.0)
    await clock.advance(3600)
    await step(history, clock, orders=7.0)
    assert rates_of(history, "orders") == [5.0, 0.0, None, 7.0]
    assert rates_of(history, "payments") == [0.0, 1.0, None, 0.0]
    assert rates_of(history, "never") == [0.0, 0.0, None, 0.0]
    assert history.names("topic", DAY) == ["orders", "payments"]


async def test_each_day_has_lines_of_its_own_and_a_week_of_them_is_kept():
    clock = clock_at()
    history = History(clock)
    for number in range(1, 11):
        await step(history, clock, orders=float(number))
        await clock.advance(24 * 3600 - STEP_S)
    history.note("topic", {})
    today = history.today()
    assert today == DAY + timedelta(days=10)
    assert rates_of(history, "orders", day=today - timedelta(days=2)) == [9.0]
    assert rates_of(history, "orders", day=DAY) == [], "it is a week ago and more"
    assert len(history._days) <= 7


async def test_of_a_day_the_busiest_lines_are_kept():
    clock = clock_at()
    history = History(clock)
    await step(history, clock, **{f"t{number}": float(number + 1) for number in range(2500)})
    names = history.names("topic", DAY)
    assert len(names) == 2000 and "t2499" in names and "t0" not in names


async def test_a_folder_keeps_days_for_the_next_start(tmp_path):
    clock = clock_at()
    history = History(clock, tmp_path / "kept")
    await step(history, clock, orders=5.0)
    await step(history, clock, orders=7.0)
    again = History(clock, tmp_path / "kept")
    assert rates_of(again, "orders") == [5.0, 7.0]
    await clock.advance(24 * 3600)
    later = History(clock, tmp_path / "kept")
    assert later.first_day() == DAY and rates_of(later, "orders") == [5.0, 7.0]
    assert rates_of(later, "orders", day=later.today()) == []


async def test_a_start_in_the_middle_of_a_day_goes_on_with_its_lines(tmp_path):
    clock = clock_at()
    history = History(clock, tmp_path)
    await step(history, clock, orders=5.0)
    await clock.advance(1800)
    again = History(clock, tmp_path)
    await step(again, clock, orders=6.0)
    assert rates_of(again, "orders") == [5.0, None, 6.0]
    assert rates_of(History(clock, tmp_path), "orders") == [5.0, None, 6.0]


async def test_only_thirty_days_have_files(tmp_path):
    (tmp_path / "notes-of-mine.json").write_text("{}")
    (tmp_path / "20xx-yy-zz.json").write_text("{}")
    clock = clock_at()
    history = History(clock, tmp_path)
    for _ in range(33):
        await step(history, clock, orders=1.0)
        await clock.advance(24 * 3600 - STEP_S)
    assert len(list(tmp_path.glob("2026-*.json"))) == 30
    assert history.first_day() == DAY + timedelta(days=3)
    assert (tmp_path / "notes-of-mine.json").exists()


async def test_the_oldest_days_go_when_the_files_take_too_much_room(tmp_path):
    clock = clock_at()
    for most_bytes, days in ((10_000, 30), (250, 2), (1, 1)):
        folder = tmp_path / str(most_bytes)
        history = History(clock, folder, most_bytes)
        for _ in range(31):
            await step(history, clock, orders=1.0)
            await clock.advance(24 * 3600 - STEP_S)
        files = sorted(folder.iterdir())
        assert len(list(folder.glob("????-??-??.json"))) == days, files
        today = history.today() - timedelta(days=1)
        assert rates_of(History(clock, folder), "orders", day=today) == [1.0], "the newest day is there"


async def test_a_day_that_is_damaged_is_told_and_begins_anew(tmp_path, caplog):
    (tmp_path / "2026-11-20.json").write_text('{"looked": {"topic": [1')
    clock = clock_at()
    history = History(clock, tmp_path)
    with caplog.at_level(logging.WARNING):
        await step(history, clock, orders=5.0)
    assert "the history of 2026-11-20 is lost" in caplog.text
    assert rates_of(history, "orders") == [5.0]


async def test_a_folder_that_cannot_be_written_to_is_told_and_tried_again(tmp_path, caplog):
    folder = tmp_path / "kept"
    folder.write_text("a file")
    clock = clock_at()
    history = History(clock, folder)
    with caplog.at_level(logging.WARNING):
        await step(history, clock, orders=5.0)
    assert "is not written to" in caplog.text
    folder.unlink()
    await history.close_step()
    assert rates_of(History(clock, folder), "orders") == [5.0]
