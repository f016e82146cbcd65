"""docs/understand/names.md leads readers to files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "understand" / "names.md").read_text(encoding="utf-8")
ROWS = [line.strip("| \n").split(" | ") for line in PAGE.splitlines() if re.match(r"\| (?!Java \|)", line)]


def test_every_file_that_is_named_exists():
    named = {name for _, here in ROWS for name in re.findall(r"`([\w/]+\.py)`", here)}
    assert len(named) > 60 and not [name for name in sorted(named) if not (ROOT / "sparrowmq" / name).is_file()]


def test_every_row_leads_to_a_file_or_says_that_there_is_none():
    assert not [java for java, here in ROWS if "`" not in here and here != "not yet"]


def test_each_name_of_java_is_in_one_row():
    names = [name.strip() for java, _ in ROWS for name in java.split(",")]
    assert len(names) == len(set(names))
