"""The page of results: medians, ratios, and sections replaced in place."""

from bench import results
from bench.results import Measure, keep_section, table


def test_a_row_tells_median_spread_and_ratio():
    rounds = {"ours": [{"rate": r} for r in (300, 100, 200)], "apache-4.9.7": [{"rate": 400}]}
    text = table(("bytes",), {("128",): rounds}, [Measure("messages/s", lambda f: f["rate"])])
    assert text.splitlines() == [
        "| bytes | broker | messages/s | ratio |",
        "| --- | --- | --- | --- |",
        "| 128 | ours | 200 (100..300) | 0.50 |",
        "| 128 | apache-4.9.7 | 400 | 1.00 |",
    ]


def test_without_the_reference_no_ratio_is_told():
    text = table((), {(): {"ours": [{"us": 1.234}]}}, [Measure("us", lambda f: f["us"])])
    assert text.endswith("| ours | 1.23 |  |")


def test_a_section_is_replaced_and_its_neighbours_stay(monkeypatch, tmp_path):
    monkeypatch.setattr(results, "PAGE", tmp_path / "RESULTS.md")
    keep_section("send", "How fast?", "old")
    keep_section("pull", "How much?", "neighbour")
    keep_section("send", "How fast?", "new \\1")
    page = results.PAGE.read_text()
    assert "old" not in page and "new \\1" in page and "neighbour" in page
    assert page.index("How fast?") < page.index("How much?") and page.count("<!-- send -->") == 1
