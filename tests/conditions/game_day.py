"""A game day: causes picked by a seed go wrong in a cluster under load, one or two at a time.

    python -m tests.conditions.game_day --seed 1 --causes 20

For each turn: the causes begin, doctor is asked until it names all of them, each remedy is done as doctor says it, and
all must be quiet again. Who reads doctor does not know the causes: a finding counts only by its condition and broker.
The transcript goes to the standard output. The exit status is 1 if a cause was not named, or did not end.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.conditions.blind import BlindRound
from tests.conditions.causes import CAUSES, Cause, Course
from tests.conditions.field import Field, Remedy, said_of
from tests.conditions.load import TOPIC, Load

_NAMED_S: Final = 60.0


def turns(seed: int, count: int, among: Sequence[Cause] = CAUSES) -> list[list[Cause]]:
    """Pick causes, and put some together in twos that concern different brokers."""
    chance = random.Random(seed)
    picked = chance.sample(among, min(count, len(among)))
    found: list[list[Cause]] = []
    for each in picked:
        fits = [turn for turn in found if len(turn) == 1 and _are_apart(turn[0], each)]
        if fits and chance.random() < 0.5:
            fits[0].append(each)
        else:
            found.append([each])
    return found


def _are_apart(one: Cause, other: Cause) -> bool:
    """Whether the two concern servers that have nothing to do with each other."""
    return one.where[-1] != other.where[-1]


class GameDay:
    """Plays turns, and writes the transcript.

    Attributes:
        number: of turns that were played.
        named, ended: the numbers of causes.
        sent, failed: the numbers of messages of the load.
    """

    def __init__(self) -> None:
        self.number = self.named = self.ended = self.sent = self.failed = 0
        self._field: Field
        self._load: Load

    def on_a_field(self, plan: Sequence[Sequence[Cause]]) -> None:
        """Play what is left of the plan, up to the first turn that goes wrong: the next one needs another field."""
        with tempfile.TemporaryDirectory() as folder, Field(Path(folder)) as self._field:
            self._prepare()
            self._field.run("topic", "create", TOPIC)
            self._field.quiet()
            with Load(self._field.namesrv) as load:
                self._load = load
                is_well = True
                while is_well and self.number < len(plan):
                    causes = plan[self.number]
                    self.number += 1
                    is_well = self._play(causes)
            self.sent, self.failed = self.sent + load.sent, self.failed + load.failed

    def _prepare(self) -> None:
        """Start what is there before anything goes wrong."""

    def _play(self, causes: Sequence[Cause]) -> bool:
        """Let causes go wrong together, name them, and end them. Returns whether all of that worked."""
        began = time.monotonic()
        say(f"turn {self.number}: {' and '.join(each.name for each in causes)}")
        try:
            courses = [(each, each.run(self._field)) for each in causes]
            for _, course in courses:
                next(course)
            found = self._name(causes, began)
            for each, course in courses:
                self._end(each, course, found)
            self._field.quiet(max(each.over_s for each in causes))
        except AssertionError as error:
            say(f"  NOT DONE: {error}")
            return False
        self.ended += len(causes)
        say(f"  quiet again after {time.monotonic() - began:.0f} s")
        return True

    def _name(self, causes: Sequence[Cause], began: float) -> dict[str, Remedy]:
        """Return the findings of doctor for each cause, once it names all."""
        deadline = time.monotonic() + _NAMED_S
        while True:
            status, wrong = self._field.doctor()
            said = {each.name: said_of(each.kind, self._field.brokers[each.where], wrong) for each in causes}
            found = {name: remedy for name, remedy in said.items() if remedy is not None}
            if len(found) == len(causes) and status == 1:
                break
            assert time.monotonic() < deadline, f"doctor names {found}, of {[each.name for each in causes]}: {wrong}"
        self.named += len(causes)
        for remedy in wrong:
            say(f"  doctor, after {time.monotonic() - began:.0f} s: {remedy.what}")
            say(f"    do: {remedy.text}")
        return found

    def _end(self, cause: Cause, course: Course, found: dict[str, Remedy]) -> None:
        try:
            course.send(found[cause.name])
        except StopIteration:
            return
        raise AssertionError(f"{cause.name} has more than one step")


class BlindDay(GameDay):
    """Lets a person name and end what goes wrong: see `blind`."""

    def __init__(self, sealed: Path, lines: Iterator[str]) -> None:
        super().__init__()
        self._sealed = sealed
        self._lines = lines

    def _prepare(self) -> None:
        self._field.start_d()  # a server that starts later would betray the cause that needs it
        self._field.start_group()

    def _play(self, causes: Sequence[Cause]) -> bool:
        blind = BlindRound(self._field, self._load, self._sealed, say)
        try:
            named, ended, is_well = blind.play(self.number, causes, self._lines)
        except AssertionError as error:
            say(f"  NOT DONE: {error}")
            return False
        self.named, self.ended = self.named + named, self.ended + ended
        return is_well


def say(line: str) -> None:
    print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--causes", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="only causes that show and end within seconds")
    parser.add_argument("--blind", action="store_true", help="a person is the operator: see blind.py")
    parser.add_argument("--sealed", type=Path, default=Path("game-day.sealed"), help="the file with the answers")
    parser.add_argument("--skip", type=int, default=0, help="turns to leave out")
    options = parser.parse_args(arguments)
    among = [each for each in CAUSES if not (options.quick and each.is_slow)]
    began, plan = time.monotonic(), turns(options.seed, options.causes, among)
    day = BlindDay(options.sealed, iter(sys.stdin)) if options.blind else GameDay()
    day.number = options.skip
    while day.number < len(plan):
        day.on_a_field(plan)
    count = sum(map(len, plan[options.skip :]))
    say(
        f"{day.named} of {count} causes named, {day.ended} ended by their remedies, in {len(plan)} turns and "
        f"{time.monotonic() - began:.0f} s; {day.sent} messages sent, {day.failed} sends failed"
    )
    return 0 if day.named == day.ended == count else 1


if __name__ == "__main__":
    sys.exit(main())
