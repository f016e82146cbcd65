"""docs/start/tutorial.md: run from the first command to the last, as a reader does, with the extra `server` alone."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.environments import python_with, variables
from tests.examples.test_clusters import free_port

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "start" / "tutorial.md").read_text()
PIECES = re.findall(r"```(sh|python|text)?\n(.*?)```", PAGE, re.DOTALL)
SMALL = ["mappedFileSizeCommitLog=4m", "maxHashSlotNum=5000", "maxIndexNum=20000", "fastListenPort=off"]
ADDRESS = "127.0.0.1:9876"
# Runs one piece of code after the other, with the same names, and answers each with its output.
READER = """
import contextlib, io, json, sys
names = {}
for line in sys.stdin:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(json.loads(line), "tutorial.md", "exec"), names)
    print(json.dumps(printed.getvalue()), flush=True)
"""
CONNECT = "from sparrowmq import sync\nmq = sync.connect({!r}).__enter__()"
CLOSE = "mq.__exit__(None, None, None)"


class Reader:
    """A Python that a reader types the pieces of the page into."""

    def __init__(self, folder: Path) -> None:
        python = python_with("server")
        self._process = subprocess.Popen(
            [python, "-c", READER],
            env=variables(python, HOME=str(folder)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=30)

    def run(self, code: str) -> str:
        """Run a piece of code, and return its output."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, code
        printed: str = json.loads(answer)
        return printed


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """Start the page's cluster, small and on free ports; yield the address of its name server."""
    [command] = [text for kind, text in PIECES if "start.py" in text]
    port = free_port()
    words = command.replace("cluster 9876", f"{folder} {port}").split()
    python = python_with("server")
    process = subprocess.Popen(
        [python, *words[1:], *SMALL], stdout=subprocess.PIPE, text=True, env=variables(python), cwd=ROOT
    )
    assert process.stdout is not None
    with process, process.stdout:
        try:
            said = iter(process.stdout.readline, "")
            assert any(" is up: " in line for line in said)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            assert process.wait(30) == 0


def shell(commands: str, address: str) -> None:
    done = subprocess.run(
        ["bash", "-euc", commands.replace(ADDRESS, address)],
        env=variables(python_with("server"), NAMESRV_ADDR=address),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_all_commands_and_code_print_what_the_page_shows(tmp_path):
    printed = ""
    with cluster(tmp_path / "cluster") as address, Reader(tmp_path) as reader:
        reader.run(CONNECT.format(address))
        for kind, piece in PIECES:
            if kind == "sh":
                shell(piece, address)
            elif kind == "text":
                assert printed == piece
            elif kind == "python" and "..." not in piece:
                printed = reader.run(piece)
        reader.run(CLOSE)


def test_page_has_code_of_each_kind_and_valid_python():
    kinds = [kind for kind, _ in PIECES]
    assert kinds.count("python") >= 9 and kinds.count("sh") >= 6 and kinds.count("text") >= 8
    for kind, piece in PIECES:
        if kind == "python":
            ast.parse(piece)
