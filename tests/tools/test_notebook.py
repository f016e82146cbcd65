"""tools.notebook: a notebook is played, and keeps what its cells show."""

import json

import pytest

pytest.importorskip("matplotlib")

from tools.notebook import main, play, run


def code(source):
    return {"cell_type": "code", "source": [source], "outputs": ["old"], "execution_count": None}


def test_a_cell_shows_what_it_prints_and_the_value_of_its_last_line():
    shown = run("print('a\\nb')\nx = 1\nx + 1", {})
    assert shown == [
        {"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]},
        {"output_type": "execute_result", "metadata": {}, "data": {"text/plain": ["2"]}},
    ]
    assert run("x = 1", {}) == run("None", {}) == run("", {}) == run("5;", {}) == []


def test_what_has_a_page_is_shown_as_one():
    shown = run("class A:\n  def _repr_html_(self): return '<b/>'\n  def __repr__(self): return 'A'\nA()", {})
    assert shown[0]["data"] == {"text/html": ["<b/>"], "text/plain": ["A"]}


def test_a_plot_is_an_image_of_the_cell_that_drew_it():
    names: dict[str, object] = {}
    cells = [code("from matplotlib import pyplot as p; p.plot([1, 2]);"), code("1")]
    play(cells, names)
    assert list(cells[0]["outputs"][-1]["data"]) == ["image/png"]
    assert [shown["output_type"] for shown in cells[1]["outputs"]] == ["execute_result"]


def test_cells_are_numbered_and_know_each_others_names(tmp_path):
    book = {"cells": [code("n = 2"), {"cell_type": "markdown", "source": ["n"]}, code("n * 3")]}
    (tmp_path / "book.ipynb").write_text(json.dumps(book))
    assert main([str(tmp_path / "book.ipynb")]) == 0
    cells = json.loads((tmp_path / "book.ipynb").read_text())["cells"]
    assert [cell.get("execution_count") for cell in cells] == [1, None, 2]
    assert cells[2]["outputs"][0]["data"]["text/plain"] == ["6"]
    assert cells[2]["outputs"][0]["execution_count"] == 2


def test_words_can_be_replaced_for_a_shorter_run():
    cells = [code("20_000")]
    play(cells, {}, instead={"20_000": "5"})
    assert cells[0]["outputs"][0]["data"]["text/plain"] == ["5"]
    assert cells[0]["source"] == ["20_000"]
