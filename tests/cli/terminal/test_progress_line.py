"""What people see of long work on a terminal, and that programs see nothing of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import click
import pytest

from sparrowmq.cli.terminal.output import OUTPUT_OPTION, WIDTH, Progress, Steps, bar


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Terminal:
    """One with a screen of a line: `line` is what stands there."""

    def __init__(self, fd: int, stream: TextIO) -> None:
        self.stream = stream
        self._fd = fd
        self._written = b""

    def written(self) -> str:
        os.set_blocking(self._fd, False)
        try:
            while content := os.read(self._fd, 65536):
                self._written += content
        except BlockingIOError:
            pass
        return self._written.decode()

    def line(self) -> str:
        cells: list[str] = []
        for part in self.written().rpartition("\n")[2].split("\r"):
            cells[: len(part)] = part
        return "".join(cells).rstrip()


@contextmanager
def terminals() -> Iterator[Terminal]:
    """A terminal; a test that lets a command write to it sets `sys.stderr` itself, as pytest sets it anew."""
    ours, theirs = os.openpty()
    with open(theirs, "w") as stream:
        yield Terminal(ours, stream)
    os.close(ours)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("COLUMNS", "80")
    with terminals() as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def progress(terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Progress:
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    return Progress(clock)


def test_a_step_is_a_bar_with_its_share_and_what_is_left(progress: Progress, terminal: Terminal, clock: Clock):
    progress("reading the log", 0, 400)
    assert terminal.line() == f"reading the log   {bar(0)}    0%"
    clock.now_s += 30
    progress("reading the log", 100, 400)
    assert terminal.line() == f"reading the log   {bar(0.25)}   25%   1:30 left"


def test_nothing_of_it_is_left_in_the_end(progress: Progress, terminal: Terminal):
    with pytest.raises(ValueError), progress:
        progress("log", 1, 2)
        assert terminal.line()
        raise ValueError
    assert terminal.line() == ""


def test_a_new_step_is_drawn_at_once_and_guessed_from_its_own_begin(
    progress: Progress, terminal: Terminal, clock: Clock
):
    progress("log", 0, 10)
    clock.now_s += 60
    progress("log", 10, 10)
    progress("queues", 0, 10)
    assert terminal.line().startswith("queues ") and "left" not in terminal.line()
    clock.now_s += 5
    progress("queues", 5, 10)
    assert terminal.line().endswith("50%   0:05 left")


def test_a_step_that_begins_again_is_guessed_anew(progress: Progress, terminal: Terminal, clock: Clock):
    for _ in range(2):
        progress("log", 0, 10)
        clock.now_s += 10
        progress("log", 5, 10)
        assert terminal.line().endswith("50%   0:10 left")


def test_it_is_drawn_as_often_as_an_eye_can_follow(progress: Progress, terminal: Terminal, clock: Clock):
    for done in range(1000):
        progress("log", done, 1000)
        clock.now_s += 0.001
    assert terminal.written().count("\r") <= 11


def test_a_shorter_text_leaves_nothing_of_a_longer_one(progress: Progress, terminal: Terminal, clock: Clock):
    progress.show("1,200 messages are to be handled")
    clock.now_s += 1
    progress.show("7 sent")
    assert terminal.line() == "7 sent"


def test_a_line_is_no_longer_than_the_terminal_is_wide(
    progress: Progress, terminal: Terminal, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "20")
    progress("a step with a very long name", 1, 2)
    assert terminal.line() == "a step with a very"


def test_what_stays_comes_into_a_line_of_its_own(progress: Progress, terminal: Terminal, clock: Clock):
    progress("log", 1, 2)
    progress.clear()
    click.echo("damaged", terminal.stream)
    assert terminal.written().endswith("\rdamaged\r\n")
    progress("log", 1, 2)
    assert terminal.line().startswith("log ")


@pytest.mark.parametrize(("done", "total", "share"), [(5, 0, 1), (7, 5, 1), (0, 5, 0), (-1, 5, 0)])
def test_more_than_all_is_all(progress: Progress, terminal: Terminal, clock: Clock, done: int, total: int, share: int):
    progress("log", done, total)
    assert terminal.line() == f"log   {bar(share)}  {share:4.0%}"


def test_a_bar_grows_by_eighths_of_a_cell():
    assert bar(0) == "·" * WIDTH
    assert bar(1) == "█" * WIDTH
    assert bar(1.5 / WIDTH) == "█▌".ljust(WIDTH, "·")
    assert all(len(bar(share / 1000)) == WIDTH for share in range(1001))


@click.command()
@OUTPUT_OPTION
def command() -> None:
    with Progress() as progress:
        progress("log", 1, 2)
        progress.show("7 sent")


@pytest.mark.parametrize(("args", "is_drawn"), [([], True), (["-o", "json"], False), (["-o", "csv"], False)])
def test_programs_see_nothing_of_it_even_on_a_terminal(
    terminal: Terminal, args: list[str], is_drawn: bool, monkeypatch
):
    monkeypatch.setattr(sys, "stderr", terminal.stream)
    command.main(args, standalone_mode=False)
    assert bool(terminal.written()) is is_drawn


def test_nothing_is_drawn_into_a_pipe(capfd: pytest.CaptureFixture[str]):
    command.main([], standalone_mode=False)
    assert capfd.readouterr() == ("", "")


def test_steps_are_lines_and_waiting_is_not(capsys):
    with Steps() as steps:
        steps.show("[1/2] broker-a: restart")
        steps.show("waiting")
        steps.begin("to continue: \x1b[2J")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "[1/2] broker-a: restart\nto continue: \\x1b[2J\n")
