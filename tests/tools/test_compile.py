from __future__ import annotations

import sys
import sysconfig

import pytest

from sparrowmq import compiled
from tools import compile as compiling


def test_a_machine_without_a_compiler_is_told_so_and_goes_on(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compiling.main() == 0
    assert "runs from source, at half its speed: there is no C compiler no-such-compiler" in capsys.readouterr().err


def test_a_python_without_headers_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path):
    monkeypatch.setenv("CC", sys.executable)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert "python3-dev" in (compiling.what_is_missing() or "")


def test_a_build_that_fails_leaves_everything_to_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path, capsys):
    def fail() -> None:
        raise RuntimeError("no such flag")

    monkeypatch.setattr(compiling, "what_is_missing", lambda: None)
    monkeypatch.setattr(compiling, "ROOT", tmp_path)
    monkeypatch.setattr(compiling, "build", fail)
    monkeypatch.setattr(compiled, "RECORD", str(tmp_path / "compiled.sum"))
    assert compiling.main() == 0
    assert "runs from source: compiling failed (no such flag)" in capsys.readouterr().err
    assert (tmp_path / "compiled.sum").read_text() == "unfinished"
