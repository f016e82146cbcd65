"""A scenario's file: commands, and below each what it says.

    # A comment tells the story.
    send orders hello delay=10s
    ----
    stored

    pass 10s
    ----
    0:10 ann: hello

A command is a line: a verb, words, and name=value pairs. What it said stands below `----`, up to an empty line.
(The idea is raft's testdata and cockroach's datadriven.)
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

RULE = "----"
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


class BadScript(Exception):
    """A scenario's file cannot be understood."""


@dataclass
class Step:
    """One command with the comment above it and the lines expected below it."""

    comment: list[str]
    command: str
    expected: list[str]
    line: int
    verb: str = ""
    words: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.verb, *rest = shlex.split(self.command)
        for word in rest:
            name, is_option, value = word.partition("=")
            if is_option:
                self.options[name] = value
            else:
                self.words.append(word)


def read(path: Path) -> list[Step]:
    """Raises: BadScript."""
    steps: list[Step] = []
    for number, block in _blocks(path.read_text(encoding="utf-8")):
        comment = [line for line in block if line.startswith("#")]
        rest = block[len(comment) :]
        if len(rest) < 2 or rest[1] != RULE:
            raise BadScript(
                f"{path.name}:{number + len(comment)}: a command and below it {RULE} are wanted, not {rest[:2]}"
            )
        steps.append(Step(comment, rest[0], rest[2:], number + len(comment)))
    return steps


def _blocks(text: str) -> list[tuple[int, list[str]]]:
    """What stands between empty lines, each with the number of its first line."""
    blocks: list[tuple[int, list[str]]] = []
    begins = True
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            begins = True
        elif begins:
            blocks.append((number, [line]))
            begins = False
        else:
            blocks[-1][1].append(line)
    return blocks


def write(path: Path, steps: list[Step]) -> None:
    blocks = ["\n".join([*step.comment, step.command, RULE, *step.expected]) for step in steps]
    path.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


def seconds(text: str) -> float:
    """`1h30m` as seconds. Raises: BadScript."""
    found = _DURATION.findall(text)
    if not found or "".join(number + unit for number, unit in found) != text:
        raise BadScript(f"{text!r} is no duration; write 250ms, 10s, 2m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in found)


def clock_face(elapsed_s: float) -> str:
    """A moment since the scenario's beginning, rounded to a tenth of a second: 0:10 or 1:02:03.5."""
    tenths = round(elapsed_s * 10)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    face = f"{minutes:02}:{rest // 10:02}" if hours else f"{minutes}:{rest // 10:02}"
    return (f"{hours}:" if hours else "") + face + (f".{rest % 10}" if rest % 10 else "")
