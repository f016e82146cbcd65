"""Options as Java's tool takes and explains them: commons-cli 1.2's PosixParser, and its help at width 110.

    -t Orders   -tOrders   --topic Orders   --topic=Orders   -al   (two flags)

A value is the next word that is not itself an option of the command, so `-s -1` is a value. More words after an option
with one value are ignored, as are words that belong to no option.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 110
_LEFT_PAD: Final = 1
_GAP: Final = 3


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Of those of one `group` exactly one has to be given."""

    letter: str
    name: str
    meaning: str
    has_value: bool = True
    required: bool = False
    group: str = ""


HELP: Final = Option("h", "help", "Print help", has_value=False)
NAMESRV: Final = Option("n", "namesrvAddr", "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'")


class WrongOptions(Exception):
    """The words do not fit the options."""


def parse(words: Sequence[str], options: Iterable[Option]) -> dict[str, str]:
    """Return the values by letter; "" for a flag. Raises: WrongOptions."""
    by_key = {key: option for option in options for key in (option.letter, option.name)}
    values: dict[str, str] = {}
    left = _split(words, by_key)
    while left:
        word = left.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            continue
        option = by_key.get(_key(word))
        if option is None:
            raise WrongOptions(f"there is no option {word}")
        _check_group(option, values, by_key)
        values[option.letter] = _value(option, left, by_key, values)
    _check_required(values, by_key)
    return values


def usage(command: str, options: Iterable[Option]) -> str:
    ordered = sorted(options, key=lambda option: option.letter.lower())
    lines = _wrap(f"usage: {command} {' '.join(_synopsis(ordered))}", len("usage: "))
    heads = [_head(option) for option in ordered]
    column = max(map(len, heads)) + _GAP
    for head, option in zip(heads, ordered, strict=True):
        lines += _wrap(head.ljust(column) + option.meaning, column)
    return "".join(line + "\n" for line in lines)


def _key(word: str) -> str:
    return word.removeprefix("-").removeprefix("-")


def _split(words: Sequence[str], by_key: dict[str, Option]) -> list[str]:
    """The words with bundles taken apart: -al into -a -l, -tOrders into -t Orders, --a=b into --a b."""
    found: list[str] = []
    for word in words:
        if word.startswith("--") and "=" in word:
            found += word.split("=", 1)
        elif word.startswith("-") and not word.startswith("--") and len(word) > 2 and _key(word) not in by_key:
            found += _split_bundle(word, by_key)
        else:
            found.append(word)
    return found


def _split_bundle(word: str, by_key: dict[str, Option]) -> list[str]:
    found: list[str] = []
    for at, letter in enumerate(word[1:], 1):
        option = by_key.get(letter)
        if option is None:
            return [*found, word]
        found.append(f"-{letter}")
        if option.has_value and at + 1 < len(word):
            return [*found, word[at + 1 :]]
    return found


def _value(option: Option, left: list[str], by_key: dict[str, Option], values: dict[str, str]) -> str:
    if not option.has_value:
        return ""
    if not left or left[0] == "--" or (left[0].startswith("-") and _key(left[0]) in by_key):
        raise WrongOptions(f"-{option.letter} needs a value")
    value = left.pop(0)
    # Given twice, the first one counts.
    return values.get(option.letter, value.removeprefix('"').removesuffix('"'))


def _check_group(option: Option, values: dict[str, str], by_key: dict[str, Option]) -> None:
    for letter in values:
        if option.group and letter != option.letter and by_key[letter].group == option.group:
            raise WrongOptions(f"-{option.letter} and -{letter} exclude each other")


def _check_required(values: dict[str, str], by_key: dict[str, Option]) -> None:
    groups = {by_key[letter].group for letter in values}
    for option in by_key.values():
        missing = option.group not in groups if option.group else option.required and option.letter not in values
        if missing:
            raise WrongOptions(f"-{option.letter} is missing")


def _synopsis(ordered: Sequence[Option]) -> list[str]:
    parts: list[str] = []
    done: set[str] = set()
    for option in ordered:
        if not option.group:
            parts.append(_word(option) if option.required else f"[{_word(option)}]")
        elif option.group not in done:
            done.add(option.group)
            parts.append(" | ".join(_word(each) for each in ordered if each.group == option.group) + " ")
    return parts


def _word(option: Option) -> str:
    return f"-{option.letter} <arg>" if option.has_value else f"-{option.letter}"


def _head(option: Option) -> str:
    name = f"-{option.letter},--{option.name}{' <arg>' if option.has_value else ''}"
    return " " * _LEFT_PAD + name


def _wrap(text: str, indent: int) -> list[str]:
    """Lines of at most WIDTH characters, if their words let them; all but the first are indented."""
    lines: list[str] = []
    cut = _cut(text)
    while cut is not None:
        lines.append(text[:cut].rstrip())
        text = " " * indent + text[cut:].strip()
        cut = _cut(text)
        if cut == indent - 1 and len(text) > WIDTH:
            cut = WIDTH
    # Where nothing was cut, what is left keeps its beginning only.
    return [*lines, text if lines else text.rstrip()]


def _cut(text: str) -> int | None:
    """Return the end of a line that is too long: its last blank, or the first one after the width."""
    if len(text) <= WIDTH:
        return None
    before = text.rfind(" ", 0, WIDTH + 1)
    if before > 0:
        return before
    behind = text.find(" ", WIDTH)
    return behind if behind >= 0 else None
