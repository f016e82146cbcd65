"""docs/understand/names.md leads readers to files that exist, and explains words that the product uses."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "understand" / "names.md").read_text(encoding="utf-8")
WORDS, FILES = PAGE.split("## From a Java class to a file")
ROWS = [line.strip("| \n").split(" | ") for line in FILES.splitlines() if re.match(r"\| (?!Java \|)", line)]


def test_every_file_that_is_named_exists():
    named = {name for _, here in ROWS for name in re.findall(r"`([\w/]+\.py)`", here)}
    assert len(named) > 60 and not [name for name in sorted(named) if not (ROOT / "sparrowmq" / name).is_file()]


def test_every_row_leads_to_a_file_or_says_that_there_is_none():
    assert not [java for java, here in ROWS if "`" not in here and here != "not yet"]


def test_each_name_of_java_is_in_one_row():
    names = [name.strip() for java, _ in ROWS for name in java.split(",")]
    assert len(names) == len(set(names))


def test_the_product_uses_each_word_of_the_glossary():
    source = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "sparrowmq").rglob("*.py"))
    words = {word for line in WORDS.splitlines() for word in re.findall(r"`(\w+)`", line.partition(" | ")[0])}
    assert len(words) > 30 and not [word for word in sorted(words) if not re.search(rf"\b{word}\b", source)]
