import re

import pytest
import yaml

from tools import docs

SHOWN = {seed for area in docs.read_seeds().values() for seed in area} - docs.read_unshown().keys()
SEEDS = {"Clients": {"S-CFG-01": "one | two"}, "Rest": {"S-ERR-01": "errors"}}

MARKED = """
import pytest

@pytest.mark.covers("S-CFG-01", "S-ERR-01")
async def test_a(): ...

class TestB:
    @pytest.mark.nightly
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


def test_coverage_names_the_tests_or_says_why_not_yet():
    marks = {"S-CFG-01": ["tests/a.py::test_a", "tests/b.py"]}
    page = docs.coverage(SEEDS, marks, {"S-ERR-01": "who errs?"})
    assert "| S-CFG-01 | one \\| two | `a.py::test_a`<br>`b.py` |" in page
    assert "| S-ERR-01 | errors | not yet: who errs? |" in page


BOTH = {"S-CFG-01": ["tests/a.py"], "S-ERR-01": ["tests/b.py"]}


@pytest.mark.parametrize(
    ("marks", "unshown", "words"),
    [
        ({"S-CFG-01": ["tests/a.py"]}, {}, r"no test shows S-ERR-01: mark one"),
        (BOTH | {"S-CFG-99": ["tests/c.py"]}, {}, r"S-CFG-99 is no capability .* mark of tests/c\.py"),
        (BOTH, {"S-CFG-98": "why"}, r"S-CFG-98 under \[unshown\] of tools/seeds.toml is no capability"),
        (BOTH, {"S-ERR-01": "why"}, r"tests/b\.py shows S-ERR-01 now: take it off \[unshown\]"),
    ],
)
def test_each_capability_is_shown_or_on_the_list_of_those_that_are_not(marks, unshown, words):
    with pytest.raises(docs.BadCoverage, match=words):
        docs.coverage(SEEDS, marks, unshown)


def test_the_list_of_what_is_not_shown_is_short_and_gives_reasons():
    unshown = docs.read_unshown()
    assert len(unshown) <= 5 and all(len(reason) > 10 for reason in unshown.values())


@pytest.mark.slow
def test_a_capability_without_a_test_fails_the_build(monkeypatch):
    marks = docs.read_marks(docs.ROOT / "tests")
    del marks["S-CFG-01"]
    monkeypatch.setattr(docs, "read_marks", lambda folder: marks)
    with pytest.raises(docs.BadCoverage, match="no test shows S-CFG-01"):
        docs.generated_pages()


def test_every_request_of_the_table_is_on_the_page_once():
    from sparrowmq.protocol.requests.request_table import ROWS

    rows = re.findall(r"^\| (\d+) \| ([A-Z_0-9]+) \|", docs.requests(), re.MULTILINE)
    assert sorted(rows) == sorted((str(int(row.code)), row.code.name) for row in ROWS)


@pytest.mark.slow
def test_every_generated_page_has_a_title_and_a_place_in_the_site(pages):
    settings = yaml.safe_load((docs.ROOT / "mkdocs.yml").read_text().split("markdown_extensions:")[0] + "nav: []")
    assert settings["strict"], "a dead link would only be a warning"
    nav = (docs.ROOT / "mkdocs.yml").read_text()
    for name, text in pages.items():
        if name.endswith(".md"):
            assert text.startswith("# ")
            assert f": {name}\n" in nav
