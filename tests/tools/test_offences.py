"""The list of what the rules refuse: names that say nothing, late wiring, and large classes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tools import offences as tool
from tools.offences import offences, problems, read_list, text_of
from tools.size import Product

SOURCE = """
from dataclasses import dataclass

class Table:
    on_change: "Callable[[], object]"

    def __init__(self, found, *, data):
        self._kept = found
        self.value = data

    def told(self):
        known = 1
        return lambda each: each + known

@dataclass
class Row:
    who: str
    size: int

class Broker:
    def start(self, table):
        table.on_change = self.stop
        table.value = 3
        row = Row("a", 1)
        row.size = 2
        self.on_change = self.stop

    def stop(self): ...
"""


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Product:
    (tmp_path / "sparrowmq").mkdir()
    (tmp_path / "sparrowmq/table.py").write_text(SOURCE)
    monkeypatch.setattr("tools.floors.PACKAGE", tmp_path / "sparrowmq")
    return Product(tmp_path)


def test_names_that_say_nothing_and_late_wiring_are_found(product):
    """Local variables and arguments of a lambda may be short; values and an object's own attributes may be set."""
    assert sorted(name for name, _, _ in offences(product)) == [
        "name _kept",
        "name found",
        "name told",
        "name who",
        "wiring table.on_change",
    ]


def test_an_offence_has_its_place(product):
    places = {name: (file, line) for name, file, line in offences(product)}
    assert places["wiring table.on_change"] == ("sparrowmq/table.py", 22)


def test_a_new_offence_is_a_problem_and_the_list_gets_shorter(product, tmp_path, monkeypatch, capsys):
    listed = tmp_path / "offences.txt"
    monkeypatch.setattr(tool, "LIST", listed)
    monkeypatch.setattr(tool, "Product", lambda: product)
    monkeypatch.setattr(tool, "read_list", lambda: read_list(listed))
    now = [name for name, _, _ in offences(product)]
    listed.write_text(text_of(Counter([*now, "name gone"])))
    assert tool.main([]) == 1 and "strikes them: name gone" in capsys.readouterr().out
    assert tool.main(["--write"]) == 0 and tool.main([]) == 0
    assert "gone" not in listed.read_text()
    (tmp_path / "sparrowmq/other.py").write_text("def given(): ...\n")
    monkeypatch.setattr(tool, "Product", lambda: Product(tmp_path))
    assert tool.main([]) == 1
    assert "name given: 1 places, 0 are listed" in capsys.readouterr().out
    assert tool.main(["--write"]) == 1 and "given" not in listed.read_text()


def test_todays_offences_are_those_of_the_list():
    now = list(offences(Product()))
    assert list(problems(now, read_list())) == []
