"""The benchmark of the console's pages, in a small crowd, from its command line to its tables."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.skipif(not (shutil.which("chromium") or shutil.which("chromium-browser")), reason="no Chromium")
def test_a_quick_run_opens_every_page():
    command = [sys.executable, "-m", "bench", "crowd", "--quick", "--topics", "300", "--groups", "130"]
    run = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    rows = {line.split("|")[1].strip(): line.split("|")[2:] for line in run.stdout.splitlines() if "|" in line}
    assert all(float(rows[page][1]) > 0 for page in ("/", "/topics", "/groups/group-0004", "/dlq"))
    assert {"nothing", "all pages"} <= rows.keys()
