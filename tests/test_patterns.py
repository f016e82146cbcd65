"""No regular expression of the product takes quadratic time, whatever text it is given.

A header of 65 KB with 32,000 escaped quotation marks had kept a broker from all other clients for 9 s.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from time import thread_time
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[1] / "sparrowmq"
FLAGS = ("ASCII", "DOTALL", "IGNORECASE", "MULTILINE")
LENGTH = 2500
# A pattern that looks once at each character takes 0.5 ms for the longest of these texts, a quadratic one 7 ms or more.
LIMIT_S = 0.003
REPEATED = (*' \n\\"a0,:/.-{(_', '\\"', "/a", "a.", "a,", ",a", " a")
BEFORE = ("", '"', "{", "a", "1")
BEHIND = ("", "\0", "\\")
# The text is a constant, or from the user of the same program, or from an administrator, or a file's name.
TRUSTED = {
    "addresses._COMMA_OUTSIDE_BRACES",
    "logs._VALUE_PATTERN",
    "partitioning._FIELD_OR_TRANSFORM",
    "message_body._COMPARISON",  # of at most 1,000 characters
    "options.DIVIDER",
    "options.milliseconds",
    "parquet._OF_BATCH",
    "spark_commands._SECRET",
}


CALLS = {"compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub"}
WAYS = {
    "finditer": lambda pattern, text: list(pattern.finditer(text)),
    "sub": lambda pattern, text: pattern.sub(text[:0], text),
}


@pytest.mark.slow
def test_no_pattern_takes_quadratic_time():
    slow = {}
    for name, pattern, ways in patterns():
        for repeated, before, behind in product(REPEATED, BEFORE, BEHIND):
            text = before + repeated * (LENGTH // len(repeated)) + behind
            if name not in TRUSTED and is_slow(pattern, ways, text):
                slow[name] = f"{before!r}, {repeated!r} many times, {behind!r}"
    assert slow == {}


def is_slow(pattern, ways, text):
    return all(took_s(pattern, ways, text) > LIMIT_S for _ in range(3))


def took_s(pattern, ways, text):
    given = text.encode() if isinstance(pattern.pattern, bytes) else text
    begin = thread_time()
    for way in ways:
        WAYS.get(way, lambda pattern, text, way=way: getattr(pattern, way)(text))(pattern, given)
    return thread_time() - begin


@pytest.mark.slow
def test_patterns_take_the_digits_0_to_9_only():
    r"""`\d` also fits the digits of other scripts, so a number could pass that no other program reads as one."""
    assert [name for name, pattern, _ in patterns() if is_open(pattern)] == []
    assert is_open(re.compile(r"[\d.]"))


def is_open(pattern):
    return isinstance(pattern.pattern, str) and r"\d" in pattern.pattern and not pattern.flags & re.ASCII


def test_a_quadratic_pattern_is_found():
    assert is_slow(re.compile(r"\s+:"), {"search"}, " " * LENGTH)


def patterns() -> Iterator[tuple[str, re.Pattern[Any], set[str]]]:
    """Yield the name of each pattern, and the methods by which its module uses it."""
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text())
        methods = defaultdict(set)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                methods[node.value.id].add(node.attr)
        for function, way, call in calls(tree):
            name = function if way != "compile" else assigned(tree, call)
            if isinstance(call.args[0], ast.Constant):
                given = sum(getattr(re, flag) for flag in FLAGS if f"re.{flag}" in ast.unparse(call))
                ways = {way} if way != "compile" else methods[name] & CALLS
                yield f"{file.stem}.{name}", re.compile(call.args[0].value, given), ways


def calls(tree: ast.Module) -> Iterator[tuple[str, str, ast.Call]]:
    """Yield each call of the module `re`, with the function that it is in, and its name."""
    for outer in tree.body:
        for node in ast.walk(outer):
            if isinstance(node, ast.Call):
                module, _, way = ast.unparse(node.func).rpartition(".")
                if module == "re" and way in CALLS:
                    yield getattr(outer, "name", ""), way, node


def assigned(tree: ast.Module, call: ast.Call) -> str:
    """Return the name of the constant that a call makes."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is call:
            return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    return ""
