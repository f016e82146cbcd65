"""docs/tutorial.md, from its first command to its last, as a reader would do it, at a cluster of its own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparrowmq import sync
from tests.interop.apache import free_ports

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
PIECES = re.findall(r"```(sh|python|text)?\n(.*?)```", PAGE, re.DOTALL)
SMALL = ["mappedFileSizeCommitLog=4m", "maxHashSlotNum=5000", "maxIndexNum=20000", "fastListenPort=off"]
ADDRESS = "127.0.0.1:9876"
ROOM = 1100  # start.py puts brokers from the name server's port + 1035 on


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The page's cluster, small and on ports of this machine; gives its name server's address."""
    [command] = [text for kind, text in PIECES if "start.py" in text]
    port = next(port for port in iter(lambda: free_ports(1)[0], None) if port + ROOM < 1 << 16)
    words = command.replace("cluster 9876", f"{folder} {port}").split()
    process = subprocess.Popen(
        [sys.executable, *words[1:], *SMALL], stdout=subprocess.PIPE, text=True, cwd=ROOT
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
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", commands.replace(ADDRESS, address)],
        env=os.environ | {"PATH": path, "NAMESRV_ADDR": address},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"


@pytest.mark.timeout(180)
def test_every_command_and_every_piece_does_what_the_page_says(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sparrowmq.client.consuming.settings.OFFSET_FOLDER", tmp_path)
    printed = ""
    with cluster(tmp_path / "cluster") as address, sync.connect(address) as mq:
        names: dict[str, object] = {"mq": mq}
        for kind, piece in PIECES:
            if kind == "sh":
                shell(piece, address)
            elif kind == "text":
                assert printed == piece
            elif kind == "python" and "..." not in piece:
                capsys.readouterr()
                exec(compile(piece, "tutorial.md", "exec"), names)
                printed = capsys.readouterr().out


def test_the_page_has_pieces_of_each_kind_and_all_python_can_be_read():
    kinds = [kind for kind, _ in PIECES]
    assert kinds.count("python") >= 9 and kinds.count("sh") >= 6 and kinds.count("text") >= 8
    for kind, piece in PIECES:
        if kind == "python":
            ast.parse(piece)


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
