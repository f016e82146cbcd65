from typing import Any

import pytest

from tools.matrix import BadCell, Cell, cannot, page, read_cells, read_matrix, tables

MATRIX: dict[str, dict[str, Any]] = {
    "columns": {"ours": "us", "cpp": "C++", "go": "Go"},
    "rows": {"send": "send it", "sql": "filter"},
    "cannot": {"sql": {"cpp": {"because": "it is old"}}},
    "texts": {"Samples": "They run.\n"},
}

MARKED = """
import pytest

@pytest.mark.cell("send")
def test_a(target, client): ...

@pytest.mark.nightly
@pytest.mark.cell("send", "sql")
async def test_b(mq): ...

@pytest.mark.cell("sql", columns=["go"])
def test_c(client): ...
"""


def test_a_test_fills_the_columns_of_its_fixture_or_those_it_names(tmp_path):
    (tmp_path / "test_x.py").write_text(MARKED)
    ours, foreign = (
        ("ours", "apache-4.9.7", "apache-5.4.0"),
        ("cpp", "go", "node", "java-4.9.8", "java-5.4.0"),
    )
    assert read_cells(tmp_path) == [
        Cell("send", foreign, "test_x.py::test_a"),
        Cell("send", ours, "test_x.py::test_b"),
        Cell("sql", ours, "test_x.py::test_b"),
        Cell("sql", ("go",), "test_x.py::test_c"),
    ]


def test_a_cell_is_yes_a_numbered_reason_or_not_yet():
    found = [
        Cell("send", ("ours", "go"), "test_x.py::test_a"),
        Cell("sql", ("cpp", "go"), "test_x.py::test_b"),
    ]
    text = page(MATRIX, found)
    assert "| send it | yes | not yet | yes |" in text
    assert "| filter | not yet | 1 | yes |" in text
    assert "\n1. C++: it is old.\n" in text
    assert "4 of 6 cells are settled." in text
    assert "| send it | `test_x.py::test_a` |" in text
    assert text.endswith("\n\n## Samples\n\nThey run.\n")


def test_official_clients_of_5_have_a_table_of_their_own():
    five = {
        "title": "Five",
        "columns": {"five-go": "Go 5", "five-rust": "Rust"},
        "rows": {"five-send": "send", "five-recall": "recall"},
        "cannot": {"five-recall": {"five-rust": {"because": "it lacks that"}}},
    }
    matrix = MATRIX | {"five": five}
    text = page(matrix, [Cell("five-send", ("five-go", "five-rust"), "test_x.py::test_c")])
    assert "\n## Five\n\n| | Go 5 | Rust |\n|---|:-:|:-:|\n| send | yes | yes |\n| recall | not yet | 2 |\n" in text
    assert "\n2. Rust: it lacks that.\n" in text and "| send | `test_x.py::test_c` |" in text
    assert cannot(matrix, "five-recall", "five-rust") == "it lacks that"
    with pytest.raises(BadCell):
        page(matrix, [Cell("five-send", ("go",), "test_x.py")])


@pytest.mark.parametrize("cell", [Cell("fly", ("ours",), "test_x.py"), Cell("send", ("rust",), "test_x.py")])
def test_a_cell_that_the_matrix_does_not_have_is_refused(cell):
    with pytest.raises(BadCell, match=r"^test_x\.py: matrix\.toml has no cell"):
        page(MATRIX, [cell])


def test_every_reason_stands_in_a_cell_of_the_matrix():
    matrix = read_matrix()
    for table in tables(matrix):
        reasons = [(row, column) for row, reasons in table["cannot"].items() for column in reasons]
        assert reasons and all(row in table["rows"] and column in table["columns"] for row, column in reasons)
        assert all(cannot(matrix, *reason) for reason in reasons)
    assert cannot(matrix, "send", "cpp") is None
