"""Which context a command uses, and what its file contains."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sparrowmq.cli.terminal import contexts
from sparrowmq.cli.terminal.contexts import Context, Contexts
from sparrowmq.errors import ConfigError


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARROWMQ_CONTEXTS", str(tmp_path / "own" / "contexts.json"))
    return tmp_path / "own" / "contexts.json"


def kept(current: str = "prod") -> None:
    contexts.save(Contexts(current, {"prod": Context("10.0.0.1:9876", "a", "s"), "test": Context("[::1]:9876")}))


def test_without_a_file_there_is_none() -> None:
    assert contexts.load() == Contexts() and contexts.choose(None, None) is None


def test_only_its_owner_can_read_the_file(file: Path) -> None:
    kept()
    kept()  # with a copy of the earlier content beside it
    for each in (file.parent, *file.parent.iterdir()):
        assert stat.S_IMODE(each.stat().st_mode) & 0o077 == 0, each


def test_the_one_in_use_is_for_commands_that_name_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    kept()
    assert contexts.choose(None, None) == Context("10.0.0.1:9876", "a", "s")
    assert contexts.choose(None, "10.0.0.9:9876") is None
    assert contexts.choose("test", "10.0.0.9:9876") == Context("[::1]:9876")
    monkeypatch.setenv("NAMESRV_ADDR", "10.0.0.9:9876")
    assert contexts.choose(None, None) is None
    assert contexts.choose("test", None) == Context("[::1]:9876")


def test_an_unknown_one_is_refused_with_those_that_are_known() -> None:
    kept()
    with pytest.raises(ConfigError, match=r"no context 'prdo' \(known: prod, test\); make it by"):
        contexts.choose("prdo", None)


def test_a_damaged_file_is_an_error_with_its_path(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("{")
    with pytest.raises(ConfigError, match=r"contexts.json cannot be read"):
        contexts.load()


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("a file")
    with pytest.raises(ConfigError, match="cannot be written"):
        contexts.save(Contexts())
