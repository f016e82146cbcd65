import re

import pytest

from tools import docs

SEEDS = {"Clients": {"S-CFG-01": "one | two"}, "Rest": {"S-ERR-01": "errors"}}

MARKED = """
import pytest

@pytest.mark.covers("S-CFG-01", "S-ERR-01")
async def test_a(): ...

class TestB:
    @pytest.mark.slow
    @pytest.mark.covers("S-CFG-01")
    def test_b(self): ...

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.covers("S-CFG-01"))])
def test_c(x): "mark.covers('S-NOT-01')"
"""


def test_all_capabilities_have_an_id_of_the_usual_form():
    ids = [seed for area in docs.read_seeds().values() for seed in area]
    assert len(ids) == len(set(ids)) == 137
    assert all(re.fullmatch(r"S-[A-Z0-9]+-\d\d", seed) for seed in ids)


def test_marks_are_found_on_functions_methods_and_parameters(tmp_path):
    folder = tmp_path / "tests" / "broker"
    folder.mkdir(parents=True)
    (folder / "test_x.py").write_text(MARKED)
    (folder / "test_y.py").write_text('import pytest\npytestmark = [pytest.mark.covers("S-ERR-01")]\n')
    assert docs.read_marks(tmp_path / "tests") == {
        "S-CFG-01": [f"tests/broker/test_x.py::{name}" for name in ("test_a", "TestB::test_b", "test_c")],
        "S-ERR-01": ["tests/broker/test_x.py::test_a", "tests/broker/test_y.py"],
    }


def test_coverage_names_the_tests_or_says_not_yet():
    page = docs.coverage(SEEDS, {"S-CFG-01": ["tests/a.py::test_a", "tests/b.py"]})
    assert "1 of 2 capabilities" in page
    assert "| S-CFG-01 | one \\| two | `a.py::test_a`<br>`b.py` |" in page
    assert "| S-ERR-01 | errors | not yet |" in page


def test_a_mark_with_an_unknown_id_is_refused():
    with pytest.raises(docs.UnknownSeed, match=r"S-CFG-99 in tests/a\.py"):
        docs.coverage(SEEDS, {"S-CFG-99": ["tests/a.py"]})


def test_every_request_of_the_table_is_on_the_page_once():
    from sparrowmq.protocol.requests.table import ROWS

    rows = re.findall(r"^\| (\d+) \| ([A-Z_0-9]+) \|", docs.requests(), re.MULTILINE)
    assert sorted(rows) == sorted((str(int(row.code)), row.code.name) for row in ROWS)


def test_check_tells_a_stale_page_from_a_current_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "requests", lambda: "requests")
    (tmp_path / "docs").mkdir()
    assert docs.main(["--check"]) == 1
    assert "docs/coverage.md is out of date" in capsys.readouterr().err
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0
    (tmp_path / "docs" / "coverage.md").write_text("old")
    assert docs.main(["--check"]) == 1
