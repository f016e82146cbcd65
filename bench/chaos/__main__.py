"""Lists the rigs, or plays one: `./run chaos`, `./run chaos kill --rounds 200 --seed 7`."""

from __future__ import annotations

import argparse
import ast
import importlib
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.crash.not_here import NotHere

HERE: Final = Path(__file__).parent
SHOWN: Final = 20  # sentences about broken promises


def rigs() -> dict[str, str]:
    """The question that each rig answers, by its name."""
    texts = {file.stem: ast.get_docstring(ast.parse(file.read_text("utf-8"))) for file in HERE.glob("*.py")}
    lines = {name: text.splitlines()[0] for name, text in sorted(texts.items()) if text}
    return {name: line for name, line in lines.items() if line.endswith("?")}


def main() -> int:
    """0 when every promise was kept, 1 when one was not, 3 when the rig cannot be played here."""
    known = rigs()
    parser = argparse.ArgumentParser(
        prog="./run chaos",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"  {name:10} {question}" for name, question in known.items()),
    )
    parser.add_argument("rig", choices=known)
    parser.add_argument("--rounds", type=_positive, default=20, help="how often (default 20)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="repeat an earlier run")
    parser.add_argument("--keep", action="store_true", help="keep the files, as a failure does")
    if len(sys.argv) == 1:
        parser.print_help()
        return 2
    arguments = parser.parse_args()
    return play(arguments.rig, arguments.rounds, arguments.seed, arguments.keep)


def play(rig: str, rounds: int, seed: int, keep: bool) -> int:
    """Play one rig in a folder of its own, and say what came of it."""
    logging.disable(logging.CRITICAL)  # what is mended is told, thousands of times
    folder = Path(tempfile.mkdtemp(prefix=f"sparrowmq-{rig}-"))
    module = importlib.import_module(f"bench.chaos.{rig}")
    try:
        outcome = module.play(rounds, seed, folder)
    except NotHere as reason:
        shutil.rmtree(folder)
        print(f"SKIPPED: {rig} cannot be played here: {reason}", file=sys.stderr)
        return 3
    for problem in outcome.problems[:SHOWN]:
        print(problem, file=sys.stderr)
    print(outcome.line(), flush=True)
    if outcome.problems or keep:
        print(f"the files are in {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return 1 if outcome.problems else 0


def _positive(text: str) -> int:
    if int(text) < 1:
        raise ValueError
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
