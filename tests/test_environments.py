"""Environments for pages: each has its extras and no more, and several processes may ask for one at once."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import environments

HAS = "from importlib.util import find_spec; import sys; sys.exit(not find_spec(sys.argv[1]))"


def has(python: Path, module: str) -> bool:
    return subprocess.run([python, "-c", HAS, module], cwd=python.parent).returncode == 0


def test_environments_have_the_packages_of_their_extras_only():
    client, server = environments.python_with(), environments.python_with("server")
    assert has(client, "sparrowmq") and has(client, "msgspec")
    assert has(server, "sparrowmq") and has(server, "click")
    others = [has(client, "click"), has(client, "numpy"), has(client, "pytest"), has(server, "nicegui")]
    assert not any(others)


def test_commands_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.1:9876")
    python = environments.python_with()
    found = environments.variables(python, HOME="/nowhere")
    assert "NAMESRV_ADDR" not in found and found["HOME"] == "/nowhere"
    shown = subprocess.run(["bash", "-c", "command -v sparrowmq pytest"], env=found, capture_output=True, text=True)
    assert shown.stdout.split()[0] == str(python.with_name("sparrowmq"))
    assert str(environments.ROOT / ".venv") not in shown.stdout


def test_several_callers_make_an_environment_once_until_the_lock_changes(tmp_path, monkeypatch):
    made: list[Path] = []

    def make(folder: Path, extras: tuple[str, ...]) -> None:
        assert extras == ("server",)
        folder.mkdir(exist_ok=True)
        made.append(folder)

    monkeypatch.setattr(environments, "FOLDER", tmp_path / "environments")
    monkeypatch.setattr(environments, "make", make)
    with ThreadPoolExecutor(4) as pool:
        pythons = set(pool.map(environments.python_with, ["server"] * 8))
    assert pythons == {tmp_path / "environments" / "server" / "bin" / "python"} and len(made) == 1
    monkeypatch.setattr(environments, "fingerprint", lambda: "another lock")
    environments.python_with("server")
    assert len(made) == 2


@pytest.mark.parametrize(
    ("error", "is_skipped"),
    [
        ("error: Failed to fetch: `https://example.org/simple/numpy/`", True),
        ("error: Request failed\n  Caused by: error sending request for url", True),
        ("error: No solution found when resolving dependencies", False),
    ],
)
def test_only_a_missing_network_skips_a_test(monkeypatch, error, is_skipped):
    monkeypatch.setattr(environments, "failure", lambda *words: error)
    outcome = pytest.skip.Exception if is_skipped else AssertionError
    with pytest.raises(outcome, match="needs a network" if is_skipped else "No solution"):
        environments.uv("pip", "install", "numpy")


def test_a_machine_without_uv_skips_the_test(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="needs a network: uv is not installed"):
        environments.found_uv()
