"""tools.site: links of a page on the site lead where the same links lead in the repository."""

import pytest

from tools import site


@pytest.mark.parametrize(
    ("name", "source", "text", "expected"),
    [
        ("use/client.md", "docs/use/client.md", "[s](spark.md#options)", "[s](spark.md#options)"),
        ("use/client.md", "docs/use/client.md", "[w](../understand/walk.md)", "[w](../understand/walk.md)"),
        (
            "use/client.md",
            "docs/use/client.md",
            "[b](../../bench/RESULTS.md)",
            "[b](../understand/benchmarks.md)",
        ),
        (
            "use/client.md",
            "docs/use/client.md",
            "[e](../../examples/send.py)",
            "[e](../files/examples/send.py)",
        ),
        (
            "use/client.md",
            "docs/use/client.md",
            "[x](https://example.org/a.md)",
            "[x](https://example.org/a.md)",
        ),
        ("use/client.md", "docs/use/client.md", "[r](../../README.md)", "[r](../files/README.md.txt)"),
        ("use/client.md", "docs/use/client.md", "[n](../../nowhere.md)", "[n](../../nowhere.md)"),
        ("understand/contributing.md", "CONTRIBUTING.md", "[d](docs/use/spark.md)", "[d](../use/spark.md)"),
        ("understand/contributing.md", "CONTRIBUTING.md", "[a](#tests)", "[a](#tests)"),
    ],
)
def test_links_are_rewritten_for_the_site(name, source, text, expected):
    assert site.rewritten(text, name, source, lambda path, shown: None) == expected


def test_linked_files_are_added_and_code_stays():
    added: list[str] = []
    text = "[e](../../examples/send.py)\n\n```\n[e](../../examples/batch.py)\n```\n"
    shown = site.rewritten(text, "use/client.md", "docs/use/client.md", lambda path, shown: added.append(shown))
    assert added == ["files/examples/send.py"]
    assert "[e](../../examples/batch.py)" in shown


@pytest.mark.parametrize(
    ("name", "boost"),
    [
        ("use/client.md", 2.0),
        ("understand/adr/0001-numpy.md", 0.2),
        ("understand/glossary.md", 1.0),
        ("index.md", 1.0),
    ],
)
def test_pages_that_people_use_come_first_in_the_search(name, boost):
    assert site.boost_of(name) == boost
