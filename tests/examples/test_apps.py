"""Each application in examples/apps runs by the commands of its first lines, in an order of their own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.testing.background import BackgroundCluster
from tests.interop.apache import free_ports

ROOT = Path(__file__).parents[2]
APPS = ROOT / "examples" / "apps"
STARTED = {
    "fastapi_shop.py": r'"sent":"[0-9A-F]{32}"(?s:.*)"billed":"o-1"\}',
    "gunicorn_shop.py": r"worker \d+ sent o-1 as [0-9A-F]{32}\nworker \d+ sent o-2 as [0-9A-F]{32}",
    "process_pool.py": r"20 messages handled by [12] processes, none of them this one: True",
    "outbox_inbox.py": r"10 bills for 10 orders and 11 messages",
    "django_shop/manage.py": r"ordered o-1\n1 bill for o-1",
    "test_newcomer.py": r"(?s).*1 passed.*",
}
# What other modules belong to.
PARTS = {
    "gunicorn_hooks.py",
    *(path.relative_to(APPS).as_posix() for path in APPS.glob("django_shop/shop/**/*.py")),
}
# What a reader does before, and what is here already.
BEFORE = re.compile(r"pip install |sparrowmq dev &|export ")


def commands(app: str) -> list[str]:
    """The lines that a reader follows: those below the first paragraph."""
    text = ast.get_docstring(ast.parse((APPS / app).read_text())) or ""
    return text.partition("\n\n")[2].splitlines()


def test_every_application_is_tried():
    assert {path.relative_to(APPS).as_posix() for path in APPS.rglob("*.py")} == STARTED.keys() | PARTS


@pytest.mark.slow
@pytest.mark.parametrize("app", STARTED)
def test_an_application_does_what_its_first_lines_say(app, tmp_path):
    lines = commands(app)
    assert lines[0].startswith("pip install ")
    [port] = free_ports(1)
    script = "\n".join(line for line in lines if not BEFORE.match(line)).replace("8000", str(port))
    # Programs in the background end with the last command.
    script = f"set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{script}\n"
    with BackgroundCluster(tmp_path / "cluster") as cluster:
        environment = os.environ | {
            "NAMESRV_ADDR": cluster.namesrv,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "SHOP_DB": f"{tmp_path}/shop.db",
            "PYTHONPATH": str(ROOT),
        }
        ran = subprocess.run(
            ["bash", "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110
        )
    assert ran.returncode == 0, ran.stderr
    printed = [line for line in ran.stdout.strip().splitlines() if not re.match(r"INFO|  |Operations|Running|\[", line)]
    assert re.search(STARTED[app] + r"$", "\n".join(printed)), ran.stdout + ran.stderr


def test_the_list_has_a_line_for_each():
    rows = re.findall(r"^\| \[apps/(\S+)\]\(apps/\1\) \| .+ \|$", (ROOT / "examples/README.md").read_text(), re.M)
    assert set(rows) == STARTED.keys()


def test_a_newcomer_needs_forty_lines():
    text = (APPS / "test_newcomer.py").read_text()
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 40
