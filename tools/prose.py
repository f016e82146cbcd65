"""Check the prose of README and docs: `python -m tools.prose [PAGE ...]`, part of `./run lint`.

A page fails when its sentences have more than 22 words on average, when one has more than 35, when a line of prose has
more than 120 characters, or when it uses a word of `WORDS`. `--figures` prints the figures of each page instead.

Code, link targets and headings do not count; a code span counts as one word. A table cell counts for the longest
sentence, not for the average, as most cells are fragments.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ("*.md", "docs/**/*.md", "deploy/*.md", "examples/*.md", "requirements/*.md")
# Decisions are never edited.
LEFT_OUT: Final = ("docs/understand/adr/",)
MOST_WORDS: Final = 35
MOST_ON_AVERAGE: Final = 22
LONGEST_LINE: Final = 120
# What readers stumble over, and what to write instead.
WORDS: Final = {
    r"anew": "again",
    r"nobody|no one": "no client, no broker: name the noun",
    r"whoever|whosoever|whatever": "any client, any broker: name the noun",
    r"told": "reported, said, printed",
    r"stands|lies": "is, is stored",
    r"played": "ran, tested",
    r"rigs?": "test",
    r"mends?|mended|mending": "fix, repair",
    r"so that one": "name the noun",
    r"on line": "online",
    r"In a second": "Per second",
    r"Behind": "Lag",
    r"Move it": "Reset offsets",
    r"Taken, not handled": "Prefetched",
    r"for ever": "forever",
}
_BANNED: Final = {re.compile(rf"\b({words})\b", re.IGNORECASE if words.islower() else 0): mend
                  for words, mend in WORDS.items()}  # fmt: skip
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[\"'(]*[A-Z0-9`])")
_PROSE_PARENTS: Final = ("paragraph_open",)
_CELL_PARENTS: Final = ("td_open", "th_open")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a page; `line` counts from 1 and is where its paragraph begins."""

    line: int
    text: str
    in_table: bool

    @property
    def words(self) -> int:
        return len([word for word in self.text.split() if re.search(r"\w", word)])


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one page: sentences outside of tables, their average in words, and the longest of all."""

    sentences: int
    average: float
    longest: int


def main(arguments: list[str]) -> int:
    only_figures = "--figures" in arguments
    pages = read_pages([name for name in arguments if name != "--figures"])
    if only_figures:
        for name, text in pages.items():
            found = figures(list(sentences_of(text)))
            print(f"{name:48} {found.sentences:4} sentences {found.average:5.1f} average {found.longest:3} longest")
        return 0
    offences = [f"{name}:{line}: {what}" for name, text in pages.items() for line, what in problems(text)]
    for offence in offences:
        print(offence)
    return 1 if offences else 0


def read_pages(names: list[str]) -> Mapping[str, str]:
    """The text of each page by its path; without names, of each page that the linter is for."""
    files = [Path(name).resolve() for name in names] or sorted({path for glob in PAGES for path in ROOT.glob(glob)})
    texts = {(path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)): path for path in files}
    return {
        name: path.read_text(encoding="utf-8") for name, path in texts.items() if names or not name.startswith(LEFT_OUT)
    }


def problems(text: str) -> Iterator[tuple[int, str]]:
    """Each fault of a page, as its line and a sentence about it."""
    sentences = list(sentences_of(text))
    for sentence in sentences:
        if sentence.words > MOST_WORDS:
            yield (
                sentence.line,
                f"a sentence of {sentence.words} words, the most is {MOST_WORDS}: {sentence.text[:50]}...",
            )
        yield from ((sentence.line, what) for what in banned_words(sentence.text))
    for number, line in lines_of_prose(text):
        if len(line) > LONGEST_LINE:
            yield number, f"a line of {len(line)} characters, the most is {LONGEST_LINE}"
    average = figures(sentences).average
    if average > MOST_ON_AVERAGE:
        yield 1, f"{average:.1f} words a sentence on average, the most is {MOST_ON_AVERAGE}"


def banned_words(text: str) -> Iterator[str]:
    """For each word of `WORDS` in a text, what to write instead."""
    for banned, instead in _BANNED.items():
        if found := banned.search(text):
            yield f"'{found[0]}': write {instead}"


def figures(every: Sequence[Sentence]) -> Figures:
    plain = [sentence.words for sentence in every if not sentence.in_table]
    average = sum(plain) / len(plain) if plain else 0.0
    return Figures(len(plain), average, max((sentence.words for sentence in every), default=0))


def sentences_of(text: str) -> Iterator[Sentence]:
    """The sentences of paragraphs, list items and table cells, in their order."""
    before = ""
    line = 0
    for token in _parsed(text):
        if token.map:
            line = token.map[0]
        if token.type == "inline" and before in (*_PROSE_PARENTS, *_CELL_PARENTS):
            for part in split(_words_of(token)):
                yield Sentence(line + 1, part, before in _CELL_PARENTS)
        before = token.type


def split(paragraph: str) -> Iterator[str]:
    """The sentences of one paragraph, each on one line."""
    return (" ".join(part.split()) for part in _SENTENCE_END.split(paragraph) if re.search(r"\w", part))


def _words_of(inline: Token) -> str:
    """The text that a reader sees; a code span becomes the one word `code`."""
    parts = []
    for child in inline.children or ():
        if child.type == "code_inline":
            parts.append("`code`")
        elif child.type in ("softbreak", "hardbreak") or (child.type == "html_inline" and "br" in child.content):
            parts.append(". X " if child.type == "html_inline" else " ")
        elif child.type == "text":
            parts.append(child.content)
    return "".join(parts)


def lines_of_prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines outside of code and tables, with their number; a line that is one long link cannot be shorter."""
    left_out: set[int] = set()
    for token in _parsed(text):
        if token.type in ("fence", "code_block", "table_open", "html_block") and token.map:
            left_out.update(range(*token.map))
    for number, line in enumerate(text.splitlines()):
        if number not in left_out and " " in re.sub(r"\[[^\]]*\]\([^)]*\)", "", line.strip()):
            yield number + 1, line


def _parsed(text: str) -> list[Token]:
    # Admonitions are indented by four, as code is, and their text is prose.
    plain = re.sub(r"^(!!!|\?\?\?).*\n((?:(?: {4}.*)?\n)*)", lambda found: "\n" + re.sub("(?m)^ {4}", "", found[2]),
                   text, flags=re.MULTILINE)  # fmt: skip
    return MarkdownIt("commonmark").enable("table").parse(plain)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
