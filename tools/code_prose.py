"""Check the prose inside Python files: `python -m tools.code_prose [FILE ...]`, part of `./run lint`.

A docstring, a comment or a message fails when it uses a word of `tools.prose.WORDS`, or when a sentence of a docstring
has more than 35 words. A docstring also fails when it begins with What, Who, Where or How.

Without files it checks the whole package. `--figures` prints how many offences each folder has.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.prose import MOST_WORDS, ROOT, banned_words, split

_POOR_BEGINNINGS: Final = ("What ", "Who ", "Where ", "How ", "Whose ")
# An indented line, or two spaces inside one: a drawing, a table, arguments.
_NOT_PROSE: Final = re.compile(r"(?m)^ |\S  +\S")
_ARGUMENT: Final = re.compile(r"(?m)^ +[\w, ]+:")  # names of arguments and attributes are code
_WITH_DOCSTRING: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

Offence = tuple[int, str]  # line, sentence about it


def main(arguments: list[str]) -> int:
    if "--figures" in arguments:
        for folder, count in sorted(offences_by_folder().items()):
            print(f"{count:5} {folder}")
        return 0
    files = [Path(name).resolve() for name in arguments] or sorted((ROOT / "sparrowmq").rglob("*.py"))
    offences = [
        f"{file.relative_to(ROOT)}:{line}: {what}" for file in files for line, what in problems(file.read_text())
    ]
    for offence in offences:
        print(offence)
    return 1 if offences else 0


def problems(source: str) -> Iterator[Offence]:
    """Each fault of one file's prose."""
    tree = ast.parse(source)
    docstrings = dict(_docstrings(tree))
    for line, text in docstrings.items():
        yield from _problems_of_docstring(line, text)
    for line, text in [*_comments(source), *_messages(tree, set(docstrings))]:
        yield from ((line, what) for what in banned_words(text))


def offences_by_folder() -> Counter[str]:
    package = ROOT / "sparrowmq"
    return Counter(
        file.relative_to(ROOT).parent.as_posix() for file in package.rglob("*.py") for _ in problems(file.read_text())
    )


def _problems_of_docstring(line: int, text: str) -> Iterator[Offence]:
    if text.startswith(_POOR_BEGINNINGS):
        yield line, f"a docstring begins with '{text.split()[0]}': begin with a verb or the thing"
    yield from ((line, what) for what in banned_words(_ARGUMENT.sub("", text)))
    for sentence in _sentences(text):
        if (words := len(sentence.split())) > MOST_WORDS:
            yield line, f"a sentence of {words} words, the most is {MOST_WORDS}: {sentence[:50]}..."


def _sentences(docstring: str) -> Iterator[str]:
    """Sentences of the paragraphs that are prose: no drawing, no table, no list of arguments."""
    for paragraph in inspect.cleandoc(docstring).split("\n\n"):
        if not _NOT_PROSE.search(paragraph):
            yield from split(paragraph)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Docstrings of modules, classes and functions, and the strings below attributes, by line."""
    for node in ast.walk(tree):
        for child in node.body if isinstance(node, _WITH_DOCSTRING) else ():
            match child:
                case ast.Expr(ast.Constant(str(text))):
                    yield child.lineno, text.strip()


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _messages(tree: ast.Module, docstrings: set[int]) -> Iterator[tuple[int, str]]:
    """String literals with a space: errors, log lines, help and labels."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(str(text)) if " " in text.strip() and node.lineno not in docstrings:
                yield node.lineno, text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
