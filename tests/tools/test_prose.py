"""tools.prose: which faults the linter for prose finds, and which it does not."""

import pytest

from tools import prose

WORDS = "\n".join([" ".join(["word"] * 12)] * 3)  # a sentence of 36 words
ONE_LINE = WORDS.replace("\n", " ")
HEADING = "word " * 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{WORDS}.\n", "a sentence of 36 words"),
        (f"- one\n- {ONE_LINE}\n", "a sentence of 36 words"),
        (f"| a | b |\n|---|---|\n| x | {ONE_LINE} |\n", "a sentence of 36 words"),
        (f"!!! note\n\n    {ONE_LINE}\n", "a sentence of 36 words"),
        ("This was played again.\n", "'played'"),
        ("It is Behind.\n", "'Behind'"),
        ("x " * 61 + "\n", "a line of 122 characters"),
        (". ".join(["A" + " word" * 24] * 4) + ".\n", "25.0 words a sentence on average"),
    ],
)
def test_a_fault_is_found(text, expected):
    assert any(expected in what for _, what in prose.problems(text))


@pytest.mark.parametrize(
    "text",
    [
        f"# {HEADING}played\n",
        f"```\n{WORDS} played {'x' * 130}\n```\n",
        f"A setting named\n`{HEADING}`.\n",
        "Messages behind the checkpoint are read again.\n",
        f"| a |\n|---|\n| {'x' * 130} y |\n",
        f"[a link](https://example.org/{'x' * 130})\n",
        ".\n".join(["A" + " word" * 20] * 4) + ".\n",
    ],
)
def test_what_is_no_fault_passes(text):
    assert list(prose.problems(text)) == []


def test_a_fault_names_its_line():
    assert [line for line, _ in prose.problems("Fine.\n\nAlso fine.\nIt was played.\n")] == [3]


def test_pages_of_the_project_are_read_but_not_decisions():
    names = prose.read_pages([])
    assert "README.md" in names and "docs/use/client.md" in names
    assert not [name for name in names if "adr/" in name]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["operate/all-metrics.md", "operate/configuration.md", "understand/interop.md", "understand/requests.md"],
)
def test_generated_pages_have_no_fault(pages, name):
    assert list(prose.problems(pages[name])) == []


def test_the_benchmarks_page_has_no_fault():
    assert list(prose.problems((prose.ROOT / "bench" / "RESULTS.md").read_text())) == []
