"""Lists the questions that the benchmarks answer, or runs some: `./run bench`, `./run bench send pull --quick`."""

from __future__ import annotations

import ast
import runpy
import sys
from itertools import takewhile
from pathlib import Path

HERE = Path(__file__).parent


def questions() -> dict[str, str]:
    """The first line of each benchmark's docstring, by the benchmark's name."""
    files = sorted(file for file in HERE.glob("*.py") if not file.stem.startswith("_"))
    texts = {file.stem: ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) for file in files}
    return {name: text.splitlines()[0] for name, text in texts.items() if text and text.split("\n")[0].endswith("?")}


def main(arguments: list[str]) -> int:
    known = questions()
    names = list(takewhile(known.__contains__, arguments))
    for name in names:
        sys.argv = [name, *arguments[len(names) :]]
        runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=False)
    if names:
        return 0
    print("usage: ./run bench NAME ... [ARGUMENTS]\n")
    for name, question in known.items():
        print(f"  {name:12} {question}")
    return 2 if arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
