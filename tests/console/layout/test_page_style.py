import ast
import re
from pathlib import Path

import sparrowmq.console
from sparrowmq.console.console_pages import STYLE

# Of Quasar's own style sheets, or only a mark that scripts and tests find.
ELSEWHERE = {"no-wrap", "waiting"}
# Classes that are not written in a call of `classes`.
ASIDE = "text-white font-semibold text-lg no-underline max-sm:hidden px-2 h-64 min-w-[10rem]"


def used():
    """Every class that a page gives to an element."""
    found = set(ASIDE.split())
    for file in Path(sparrowmq.console.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "classes":
                given = ast.Tuple([*call.args, *(each.value for each in call.keywords)])
                texts = [each.value for each in ast.walk(given) if isinstance(each, ast.Constant)]
                found.update(word for text in texts if isinstance(text, str) for word in text.split())
    return found


def test_every_class_that_a_page_uses_is_in_the_style():
    there = {name.replace("\\", "") for name in re.findall(r"\.((?:[a-z]|\\.)(?:[\w-]|\\.)*)", STYLE)}
    assert len(used()) > 50
    assert used() - there - ELSEWHERE == set()
