"""bench/RESULTS.md: "At a glance" has the figures of the sections that it links to."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "bench" / "RESULTS.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| \[[^\]]+\]\(#([^)]+)\) \| (.*) \|$", re.MULTILINE)


def slug(heading: str) -> str:
    """Return the anchor that MkDocs and GitHub give to a heading."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def sections() -> dict[str, str]:
    """The text of each section by its anchor."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:]
    return {slug(head): text for head, text in zip(parts[::2], parts[1::2], strict=True)}


def test_each_figure_at_a_glance_is_in_the_section_that_the_row_links_to() -> None:
    texts = sections()
    rows = ROW.findall(texts["at-a-glance"])
    assert len(rows) == 8
    for anchor, cells in rows:
        figures = re.findall(r"\d[\d,]*\.\d+|\d[\d,]*\d{3}", cells.replace("4.9.7", ""))
        assert figures
        assert [each for each in figures if each not in texts[anchor]] == []
