"""tools.code_prose: the faults that the linter finds in docstrings, comments and messages."""

import pytest

from tools import code_prose

LONG = " ".join(["word"] * 36)


@pytest.mark.parametrize(
    ("source", "line", "expected"),
    [
        ('"""What a module does."""', 1, "begins with 'What'"),
        ('def f():\n    """How it works."""', 2, "begins with 'How'"),
        ('class C:\n    x: int\n    """Where x is."""', 3, "begins with 'Where'"),
        ('"""It is made anew."""', 1, "'anew'"),
        (f'"""{LONG}."""', 1, "a sentence of 36 words"),
        (f'"""Fine.\n\n{LONG}.\n"""', 1, "a sentence of 36 words"),
        ("x = 1  # nobody reads it", 1, "'nobody'"),
        ('raise ValueError("the client is told why")', 1, "'told'"),
        ('x = f"{y} is told why"', 1, "'told'"),
    ],
)
def test_fault_is_found(source, line, expected):
    ((found, what),) = code_prose.problems(source)
    assert found == line and expected in what


@pytest.mark.parametrize(
    "source",
    [
        '"""Whatsoever."""',
        f'"""A table.\n\n    a   {LONG}\n    b   {LONG}\n"""',
        'x = {"told": 1}',
        'TOLD = "told"',
        "told = 1",
    ],
)
def test_names_keys_and_tables_are_no_prose(source):
    assert list(code_prose.problems(source)) == []
