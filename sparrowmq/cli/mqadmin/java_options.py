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
    """One option; exactly one of the options of a `group` has to be given."""

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
    remaining = _split(words, by_key)
    while remaining:
        word = remaining.pop(0)
        if word == "--":
            break
        if not word.startswith("-") or word == "-":
            continue
        option = by_key.get(_key(word))
        if option is None:
            raise WrongOptions(f"there is no option {word}")
        for letter in values:
            if option.group and letter != option.letter and by_key[letter].group == option.group:
                raise WrongOptions(f"-{option.letter} and -{letter} exclude each other")
        values[option.letter] = _take_value(option, remaining, by_key, values)
    groups = {by_key[letter].group for letter in values}
    for option in by_key.values():
        missing = option.group not in groups if option.group else option.required and option.letter not in values
        if missing:
            raise WrongOptions(f"-{option.letter} is missing")
    return values


def usage(command: str, options: Iterable[Option]) -> str:
    ordered = sorted(options, key=lambda option: option.letter.lower())
    lines = _wrap(f"usage: {command} {' '.join(_synopsis(ordered))}", len("usage: "))
    heads = [
        f"{' ' * _LEFT_PAD}-{option.letter},--{option.name}{' <arg>' if option.has_value else ''}" for option in ordered
    ]
    column = max(map(len, heads)) + _GAP
    for head, option in zip(heads, ordered, strict=True):
        lines += _wrap(head.ljust(column) + option.meaning, column)
    return "".join(line + "\n" for line in lines)


def _key(word: str) -> str:
    return word.removeprefix("-").removeprefix("-")


def _split(words: Sequence[str], by_key: dict[str, Option]) -> list[str]:
    """The words with bundles taken apart: -al into -a -l, -tOrders into -t Orders, --a=b into --a b."""
    single_words: list[str] = []
    for word in words:
        if word.startswith("--") and "=" in word:
            single_words += word.split("=", 1)
        elif word.startswith("-") and not word.startswith("--") and len(word) > 2 and _key(word) not in by_key:
            single_words += _split_bundle(word, by_key)
        else:
            single_words.append(word)
    return single_words


def _split_bundle(word: str, by_key: dict[str, Option]) -> list[str]:
    flags: list[str] = []
    for index, letter in enumerate(word[1:], 1):
        option = by_key.get(letter)
        if option is None:
            return [*flags, word]
        flags.append(f"-{letter}")
        if option.has_value and index + 1 < len(word):
            return [*flags, word[index + 1 :]]
    return flags


def _take_value(option: Option, remaining: list[str], by_key: dict[str, Option], values: dict[str, str]) -> str:
    if not option.has_value:
        return ""
    if not remaining or remaining[0] == "--" or (remaining[0].startswith("-") and _key(remaining[0]) in by_key):
        raise WrongOptions(f"-{option.letter} needs a value")
    value = remaining.pop(0)
    # Given twice, the first one counts.
    return values.get(option.letter, value.removeprefix('"').removesuffix('"'))


def _synopsis(ordered: Sequence[Option]) -> list[str]:
    parts: list[str] = []
    shown_groups: set[str] = set()
    for option in ordered:
        if not option.group:
            parts.append(_option_text(option) if option.required else f"[{_option_text(option)}]")
        elif option.group not in shown_groups:
            shown_groups.add(option.group)
            parts.append(" | ".join(_option_text(other) for other in ordered if other.group == option.group) + " ")
    return parts


def _option_text(option: Option) -> str:
    return f"-{option.letter} <arg>" if option.has_value else f"-{option.letter}"


def _wrap(text: str, indent: int) -> list[str]:
    """Lines of at most WIDTH characters, if their words let them; all but the first are indented."""
    lines: list[str] = []
    end = _line_end(text)
    while end is not None:
        lines.append(text[:end].rstrip())
        text = " " * indent + text[end:].strip()
        end = _line_end(text)
        if end == indent - 1 and len(text) > WIDTH:
            end = WIDTH
    # Where nothing was cut, what is left keeps its beginning only.
    return [*lines, text if lines else text.rstrip()]


def _line_end(text: str) -> int | None:
    """Return the end of a line that is too long: its last blank, or the first one after the width."""
    if len(text) <= WIDTH:
        return None
    last_blank = text.rfind(" ", 0, WIDTH + 1)
    if last_blank > 0:
        return last_blank
    next_blank = text.find(" ", WIDTH)
    return next_blank if next_blank >= 0 else None
