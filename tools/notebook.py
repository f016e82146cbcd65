"""Plays a notebook, and writes what its cells show into it, so that whoever opens the page sees the plots.

    .venv/bin/python -m tools.notebook examples/flights.ipynb

A cell shows what it prints, the value of its last line, and the plots that it drew: as Jupyter does, without Jupyter.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


def main(given: list[str]) -> int:
    for name in given:
        path = Path(name)
        book = json.loads(path.read_text(encoding="utf-8"))
        sys.path.insert(0, str(path.parent))  # as Jupyter does
        play(book["cells"], {})
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if given else 2


def play(cells: list[Cell], names: dict[str, Any], instead: Mapping[str, str] | None = None) -> None:
    """Run the cells with code one after the other, and put into each what it shows.

    Args:
        names: what they know and make; given up at the end.
        instead: what is run in place of some words of the sources.
    """
    import matplotlib

    matplotlib.use("agg")
    number = 0
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        number += 1
        source = "".join(cell["source"])
        for words, others in (instead or {}).items():
            source = source.replace(words, others)
        cell["outputs"] = run(source, names)
        cell["execution_count"] = number
        for shown in cell["outputs"]:
            if shown["output_type"] == "execute_result":
                shown["execution_count"] = number


def run(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What one cell shows; a semicolon at its end keeps the value of its last line to itself."""
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        if isinstance(last, ast.Expr) and not source.rstrip().endswith(";"):
            tree.body.pop()
            exec(compile(tree, "<cell>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
        else:
            exec(compile(tree, "<cell>", "exec"), names)
    shown: list[dict[str, Any]] = []
    if printed.getvalue():
        shown.append({"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())})
    if value is not None:
        shown.append({"output_type": "execute_result", "metadata": {}, "data": forms(value)})
    return shown + plots()


def forms(value: Any) -> dict[str, list[str]]:
    """A value as text and, if it can be shown so, as a page."""
    found = {"text/plain": lines(repr(value))}
    page = getattr(value, "_repr_html_", lambda: None)()
    return {"text/html": lines(page), **found} if page else found


def plots() -> list[dict[str, Any]]:
    """The plots that were drawn since the last cell."""
    from matplotlib import pyplot

    shown = []
    for number in pyplot.get_fignums():
        drawn = io.BytesIO()
        pyplot.figure(number).savefig(drawn, format="png", dpi=80, metadata={"Software": None})
        image = base64.b64encode(drawn.getvalue()).decode()
        shown.append({"output_type": "display_data", "metadata": {}, "data": {"image/png": image}})
    pyplot.close("all")
    return shown


def lines(text: str) -> list[str]:
    """As notebooks keep text."""
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
