"""docs/use/once.md: its code is Python, and imports what there is; the examples and tests of `once` run the calls."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "use" / "once.md").read_text(encoding="utf-8")
PIECES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("piece", PIECES, ids=range(len(PIECES)))
def test_a_piece_of_code_imports_what_there_is(piece):
    # Models of Django need its settings: tests/once/in_django imports those names.
    nodes = ast.walk(ast.parse(piece))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in imports:
        if "django" not in ast.unparse(node):
            exec(ast.unparse(node), {})


def test_the_table_of_ids_has_the_ranks_of_the_code():
    table = PAGE.partition("| id | set by |")[2].partition("\n\n")[0]
    ranks = [table.index(name) for name in ("`key=`", "`once_id`", "UNIQ_KEY", "ORIGIN_MESSAGE_ID", "offset id")]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "docs/start/from-celery.md", "docs/start/from-aiokafka.md"]
)
def test_readers_of_other_pages_come_to_this_one(page):
    assert re.search(r"\]\([./a-z]*use/once\.md[#)]", (ROOT / page).read_text(encoding="utf-8"))
