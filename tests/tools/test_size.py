"""The measure of the product: what counts as a statement, where it belongs, and what may grow."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from tools import floors, size
from tools.size import Product, area_of, circles, count_statements, problems

TREE = {
    "sparrowmq/__init__.py": "",
    "sparrowmq/store/log.py": "'A log.'\nfrom sparrowmq.store import file\n\n\ndef f():\n    'Open.'\n    return 1\n",
    "sparrowmq/store/file.py": "SIZE = 1\n",
    "sparrowmq/admin/topics.py": "from sparrowmq.store import log\nlog.f()\n",
}


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Product:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("tools.floors.PACKAGE", tmp_path / "sparrowmq")
    return Product(tmp_path)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 0),
        ('"""A module."""', 0),
        ("import os\nfrom os import path", 0),
        ("a = 1; b = 2", 2),
        ("a = [1,\n 2]", 1),
        ("def f():\n    'Say.'\n    return 1", 2),
        ("if a:\n    b()\nelse:\n    c()", 3),
        ("x: int\n'''Of an attribute.'''", 2),
    ],
)
def test_statements_are_counted_without_docstrings_and_imports(source, count):
    assert count_statements(ast.parse(source)) == count


@pytest.mark.parametrize(
    ("path", "area"),
    [
        ("store/log.py", "store"),
        ("client/client.py", "client"),
        ("admin/topics.py", "admin"),
        ("grpc/port.py", "http2 + grpc"),
        ("logs.py", "all other"),
        ("storeroom.py", "all other"),
    ],
)
def test_a_file_belongs_to_the_area_of_its_deepest_folder(path, area):
    assert area_of(Path(path)) == area


def test_a_product_is_counted_by_area_and_by_its_imports(product):
    assert dict(product.statements()) == {"all other": 0, "store": 3, "admin": 1}
    assert product.imported_once() == ["sparrowmq.store.file", "sparrowmq.store.log"]
    assert product.lines() == 10 and product.circles() == [] and product.large_classes() == {}


def test_modules_that_import_each_other_are_a_circle(product):
    (product.root / "sparrowmq/store/file.py").write_text("from sparrowmq.store import log\n")
    floors.imported.cache_clear()
    assert {"sparrowmq.store.log", "sparrowmq.store.file"} in product.circles()


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a", "c"}, "c": set()}, [{"a", "b"}]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [{"a", "b", "c"}]),
    ],
)
def test_circles_are_found(edges, expected):
    assert circles(edges) == expected


def test_a_class_of_more_than_30_methods_is_large(product):
    methods = "".join(f"    def m{number}(self): ...\n" for number in range(31))
    (product.root / "sparrowmq/store/file.py").write_text(f"class Wide:\n{methods}")
    assert product.large_classes() == {"sparrowmq.store.file.Wide": 31}


FIGURES = {"statements": {"store": 100, "broker": 50}}


def test_an_area_may_grow_by_what_others_lose_and_by_what_a_decision_allows(tmp_path):
    (tmp_path / "0001-pulls.md").write_text("# Pulls\n")
    grown = [{"area": "store", "statements": 5, "decision": "0001-pulls.md"}]

    def found(store: int, broker: int, **figures: object) -> list[str]:
        now = dict.fromkeys(size.AREAS, 0) | {"store": store, "broker": broker}
        return list(problems(now, FIGURES | figures, tmp_path))

    assert found(100, 50) == [] == found(120, 30) == found(90, 50)
    (problem,) = found(106, 50)
    assert problem.startswith("store has 106 statements, 6 more than committed")
    assert found(105, 50, growth=grown) == []
    assert len(found(106, 50, growth=grown)) == 1
    grown[0]["decision"] = "0002-none.md"
    assert found(100, 50, growth=grown) == ["tools/size.toml: there is no decision 0002-none.md in docs/understand/adr"]


def test_the_table_shows_each_area_beside_its_budget(product):
    lines = list(size.table(product, {"statements": {"store": 7}}))
    assert "store                   3          7    5,200" in lines
    assert any(line.endswith("files, of 560") and line.strip().startswith("4 ") for line in lines)


def test_todays_figures_are_those_that_were_committed():
    """`./run size --write` commits smaller ones."""
    assert list(problems(Product().statements(), size.read_figures())) == []


def test_the_written_figures_can_be_read(tmp_path):
    file = tmp_path / "size.toml"
    file.write_text(size.text_of(dict.fromkeys(size.AREAS, 3)))
    assert size.allowed(size.read_figures(file)) == dict.fromkeys(size.AREAS, 3)
    assert dedent(file.read_text()).count(" = 3") == len(size.AREAS)
