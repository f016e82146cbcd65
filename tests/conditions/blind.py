"""A blind game day: something goes wrong, and a person finds out what, and ends it.

    python -m tests.conditions.game_day --blind --seed 1 --causes 20

It prints where the servers are, and then for each round only that something is wrong. Use what an operator has: doctor,
/readyz, the alerts, the console, and logs that those name. Then type at this program what you would do:

    named CONDITION...      what you think it is; the time is noted. The cause of its condition counts, too
    start NAME, stop NAME   the service manager of a broker, of an etcd, or of a name server
    restart NAME
    clock NAME              set the clock of its machine right, as an NTP daemon does
    hands                   let the others do what doctor says, who have the program or the machine that it concerns
    mended                  it is over, as far as you see; judge
    give up                 open the answer, and end it

Then the round is judged: whether the condition is gone, whether all brokers take messages, and how many acknowledged
messages cannot be read. Only then the answer is opened. Meanwhile it is in the sealed file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparrowmq.metrics.condition_kinds import KINDS
from tests.conditions.causes import Cause, Course
from tests.conditions.field import ADMIN, Field, said_of
from tests.conditions.load import TOPIC, Load, lost
from tests.interop.servers import REPOSITORY

_NAMES: Final = frozenset(kind.name for kind in KINDS)
_TAKES_S: Final = 5.0  # within this time each broker stores a message of the load
_LATEST: Final = 200  # of the messages of the load

Courses = Sequence[tuple[Cause, Course]]


def guide(field: Field) -> str:
    """Return where the servers are, for the operator; and write a file for the shell."""
    environment = field.folder / "operator.env"
    words = {
        "NAMESRV_ADDR": field.namesrv,
        "ROCKETMQ_ACCESS_KEY": ADMIN[0],
        "ROCKETMQ_SECRET_KEY": ADMIN[1],
        "PYTHONPATH": REPOSITORY,
    }
    environment.write_text("".join(f"export {name}='{value}'\n" for name, value in words.items()))
    rows = [f"  {name:10} {each.address:16} {each.metrics}  {each.folder}" for name, each in field.brokers.items()]
    return "\n".join([f"source {environment}", f"certificate authority {field.folder}", *rows])


class Desk:
    """Where the operator of one round types.

    Attributes:
        guesses: what the operator named, and after how many seconds.
    """

    def __init__(self, field: Field, courses: Courses, lines: Iterator[str], say: Callable[[str], None]) -> None:
        self.guesses: dict[str, float] = {}
        self.is_given_up = False
        self._field = field
        self._courses = courses
        self._lines = lines
        self._say = say
        self._began = time.monotonic()
        self._ended: set[str] = set()

    def serve(self) -> None:
        """Do what the operator types, until the round is to be judged."""
        for line in self._lines:
            words = line.split()
            if words == ["mended"]:
                return
            if words == ["give", "up"]:
                self.is_given_up = True
                return
            try:
                self._do(words)
            except (AssertionError, KeyError, OSError) as error:
                self._say(f"  not done: {error!r}")
            self._say(f"  {self._now():.0f} s: {line.strip()}")
        self.is_given_up = True

    def end(self) -> None:
        """End what the causes still do."""
        for _, course in self._courses:
            course.close()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _do(self, words: Sequence[str]) -> None:
        match words:
            case ["named", *names]:
                assert names and _NAMES.issuperset(names), f"the conditions are {sorted(_NAMES)}"
                self.guesses.update(dict.fromkeys(names, self._now()))
            case ["start" | "stop" | "restart" as verb, name]:
                server = self._field.servers[name]
                if verb != "start":
                    server.stop()
                if verb != "stop":
                    server.__enter__()
            case ["clock", name]:
                self._field.brokers[name].skew.set(0)
            case ["hands"]:
                self._lend_hands()
            case _:
                raise AssertionError("type named, start, stop, restart, clock, hands, mended or give up")

    def _lend_hands(self) -> None:
        """Do what doctor says about the causes that the operator named."""
        _, wrong = self._field.doctor()
        for cause, course in self._courses:
            remedy = said_of(cause.kind, self._field.brokers[cause.where], wrong)
            is_named = cause.kind in self.guesses or cause.root in self.guesses
            if is_named and remedy is not None and cause.name not in self._ended:
                self._ended.add(cause.name)
                with suppress(StopIteration):
                    course.send(remedy)
                self._say(f"  the others have done what doctor says about {cause.kind}")


def when_named(causes: Sequence[Cause], guesses: Mapping[str, float]) -> dict[str, float]:
    """Return after how many seconds each cause was named, by its own condition or by that from which it follows."""
    return {
        each.name: min(guesses[name] for name in (each.kind, each.root) if name in guesses)
        for each in causes
        if guesses.keys() & {each.kind, each.root}
    }


class BlindRound:
    """One round, from what goes wrong to the opened answer."""

    def __init__(self, field: Field, load: Load, sealed: Path, say: Callable[[str], None]) -> None:
        self._field = field
        self._load = load
        self._sealed = sealed
        self._say = say

    def play(self, number: int, causes: Sequence[Cause], lines: Iterator[str]) -> tuple[int, int, bool]:
        """Return how many causes were named, how many are over, and whether the cluster is well."""
        self._seal(number, causes)
        self._load.take_acknowledged()
        courses = [(each, each.run(self._field)) for each in causes]
        for _, course in courses:
            next(course)
        self._say(f"round {number}: something is wrong\n{guide(self._field)}")
        desk = Desk(self._field, courses, lines, self._say)
        desk.serve()
        is_well = not desk.is_given_up and self._judge(max(each.over_s for each in causes))
        desk.end()
        named = when_named(causes, desk.guesses)
        self._say(f"  it was: {' and '.join(f'{each.name} ({each.kind} of {each.where})' for each in causes)}")
        for each in causes:
            after = f"after {named[each.name]:.0f} s" if each.name in named else "never"
            self._say(f"  {each.kind} was named {after}")
        too_much = set(desk.guesses) - {name for each in causes for name in (each.root, each.kind)}
        self._say(f"  named besides: {', '.join(sorted(too_much)) or 'nothing'}")
        return len(named), len(causes) if is_well else 0, is_well

    def _seal(self, number: int, causes: Sequence[Cause]) -> None:
        row = {"round": number, "causes": [each.name for each in causes]}
        with self._sealed.open("a") as sealed:
            sealed.write(json.dumps(row) + "\n")

    def _judge(self, limit_s: float) -> bool:
        began = time.monotonic()
        try:
            self._field.quiet(limit_s)
        except AssertionError as error:
            self._say(f"  NOT OVER: {error}")
            return False
        self._say(f"  no condition left, {time.monotonic() - began:.0f} s after 'mended'")
        failed = self._load.failed
        time.sleep(_TAKES_S)
        results = self._load.take_acknowledged()
        taken = {each.queue.broker_name for each in results[-_LATEST:]}
        missing = lost(self._field.namesrv, results)
        self._say(
            f"  sends go to {', '.join(sorted(taken))}; {self._load.failed - failed} failed in the last "
            f"{_TAKES_S:.0f} s; {missing} of {len(results)} acknowledged messages of {TOPIC} are lost"
        )
        return not missing
