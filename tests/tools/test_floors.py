"""The drawing of the floors: every part is on it, and each line goes down."""

import re
from xml.etree import ElementTree

from tools.floors import FLOOR_OF, draw

SVG = "{http://www.w3.org/2000/svg}"


def test_every_part_above_the_lowest_floor_is_drawn() -> None:
    texts = {text.text for text in ElementTree.fromstring(draw()).iter(f"{SVG}text")}
    assert {part for part, floor in FLOOR_OF.items() if floor} <= texts


def test_every_line_goes_down() -> None:
    lines = [path.get("d", "") for path in ElementTree.fromstring(draw()).iter(f"{SVG}path")]
    assert len(lines) > 10
    for line in lines:
        (_, begin), *_, (_, end) = re.findall(r"(-?\d+),(-?\d+)", line)
        assert int(begin) < int(end), line


def test_a_line_says_that_a_part_imports_another() -> None:
    drawn = len(re.findall("<path", draw()))
    assert drawn == draw().count('marker-end="url(#a)"')
