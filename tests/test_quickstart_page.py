"""docs/start/quickstart.md: its programs and commands run in order, with the extras that it tells readers to install.

Boxes of `sh` and `python` run, and a program prints the `text` below it. Boxes of `bash` install, or start the
cluster of `sparrowmq dev`; fixtures do both. tests/spark/test_programs.py runs the Spark program.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.environments import python_with, variables

PAGE = (Path(__file__).parents[1] / "docs" / "start" / "quickstart.md").read_text(encoding="utf-8")
PIECES = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
[EXTRAS] = re.findall(r'^pip install "\.\[([a-z,]+)\]"$', PAGE, re.MULTILINE)
[SPARK] = [text for kind, text in PIECES if kind == "python" and "spark" in text]
ADDRESS = "127.0.0.1:9876"


@pytest.fixture
def python() -> Path:
    return python_with(*EXTRAS.split(","))


@pytest.fixture
def namesrv(python: Path, tmp_path: Path) -> Iterator[str]:
    """The name server of the page's cluster, on a free port."""
    [command] = [text for kind, text in PIECES if kind == "bash" and "sparrowmq dev" in text]
    words = [*command.split(), "--port", "0", "--json"]
    process = subprocess.Popen(
        [python.with_name(words[0]), *words[1:]],
        stdout=subprocess.PIPE,
        text=True,
        env=variables(python),
        cwd=tmp_path,
    )
    assert process.stdout is not None
    with process, process.stdout:
        try:
            yield json.loads(process.stdout.readline())["namesrv"]
        finally:
            process.terminate()
            assert process.wait(30) == 0


def printed(python: Path, namesrv: str, folder: Path, *command: str) -> str:
    """What a command prints; the page's address becomes the cluster's."""
    words = [word.replace(ADDRESS, namesrv) for word in command]
    done = subprocess.run(words, env=variables(python), capture_output=True, text=True, cwd=folder, timeout=60)
    assert done.returncode == 0, f"{words[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_program_and_command_does_what_the_page_says(python, namesrv, tmp_path):
    shown = ""
    for kind, piece in PIECES:
        if kind == "python" and piece != SPARK:
            shown = printed(python, namesrv, tmp_path, "python", "-c", piece)
        elif kind == "text":
            assert shown == piece
        elif kind == "sh":
            shown = printed(python, namesrv, tmp_path, "bash", "-euc", f"export NAMESRV_ADDR={ADDRESS}\n{piece}")
            if "message tail" in piece:
                assert '{"amount": 7}' in shown and "refunded" in shown


def test_the_page_has_boxes_of_each_kind():
    kinds = [kind for kind, _ in PIECES]
    assert (kinds.count("python"), kinds.count("text"), kinds.count("sh")) == (3, 2, 2)
