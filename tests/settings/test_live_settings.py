"""Settings that change while their server runs, and the file in which that is kept."""

import asyncio
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.settings.live_settings import LiveSettings, live_keys, rewritten, with_live
from sparrowmq.settings.setting_kinds import TEXT, integer
from sparrowmq.settings.settings import Settings, build, load, setting


@dataclass(frozen=True, kw_only=True)
class Some(Settings):
    ACCEPTED: ClassVar = {"threadPoolNums": "there are no threads"}

    port: int = setting("listenPort", 1, integer(0, 65535))
    limit: int = setting("maxSize", 10, integer(1, 100), live=True)
    name: str = setting("ownName", "a", TEXT, live=True)


@dataclass(frozen=True, kw_only=True)
class Clamped(Some):
    CLAMPED: ClassVar = {"maxSize"}


FILE = "# mine\nlistenPort = 2\n\n  maxSize: 20\n! more\nownName=x\\\n  y\n"


async def test_a_change_is_used_told_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "some.conf"
    file.write_text(FILE)
    file.chmod(0o640)
    changing = LiveSettings(build(Some, load(file), "f")[0], file)
    seen: list[int] = []
    changing.subscribe(lambda now: seen.append(now.limit))
    await changing.change({"maxSize": " 30 "}, "me")
    assert (changing.current.limit, changing.current.port, seen, changing.count) == (30, 2, [30], 1)
    assert load(file) == {"listenPort": "2", "maxSize": "30", "ownName": "xy"}
    text = file.read_text()
    assert text.startswith("# mine\nlistenPort = 2\n") and "! more" in text, "the rest is as it was"
    assert file.stat().st_mode & 0o777 == 0o640


async def test_a_request_with_a_number_that_a_file_may_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "some.conf"
    file.write_text("maxSize=1000\n")
    settings, report = build(Clamped, load(file), str(file))
    assert settings.limit == 100 and len(report.clamped) == 1
    with pytest.raises(ConfigError, match="the request: maxSize = '1000' is wrong; it must be a whole number"):
        await LiveSettings(Clamped()).change({"maxSize": "1000"}, "me")


async def test_a_key_that_the_file_does_not_have_is_added(tmp_path: Path) -> None:
    file = tmp_path / "some.conf"
    file.write_text("listenPort=2")
    await LiveSettings(Some(), file).change({"ownName": "é=\\n"}, "me")
    assert load(file) == {"listenPort": "2", "ownName": "é=\\n"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maxSiz": "5"}, "maxSiz is no setting; did you mean maxSize?"),
        ({"nonsense": "5"}, "nonsense is no setting"),
        ({"listenPort": "5"}, "listenPort cannot change while the server runs: set it in its file"),
        ({"threadPoolNums": "5"}, "threadPoolNums has no effect here: there are no threads"),
        ({"maxSize": "0"}, "maxSize = '0' is wrong; it must be a whole number from 1 to 100"),
        ({"maxSize": "50", "listenPort": "3"}, "listenPort cannot change"),
    ],
)
async def test_one_that_cannot_be_changes_none(given: dict[str, str], words: str, tmp_path: Path) -> None:
    file = tmp_path / "some.conf"
    file.write_text(FILE)
    changing = LiveSettings(Some(), file)
    changing.subscribe(lambda now: pytest.fail("told"))
    with pytest.raises(ConfigError) as refused:
        await changing.change(given, "me")
    assert words in str(refused.value)
    assert changing.current == Some() and file.read_text() == FILE


async def test_what_is_so_already_may_be_given_though_it_cannot_change(tmp_path: Path) -> None:
    changing = LiveSettings(Some())
    await changing.change({"listenPort": "1", "maxSize": "11"}, "a console that sends all it was shown")
    assert changing.current.limit == 11


@pytest.mark.parametrize("name", [None, "some.toml"])
async def test_where_there_is_no_file_to_keep_it_the_log_says_how_long_it_lasts(
    name: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await LiveSettings(Some(), tmp_path / name if name else None).change({"maxSize": "11"}, "me")
    assert "maxSize: the change lasts until the server ends" in caplog.text


async def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    changing = LiveSettings(Some(), tmp_path / "gone" / "some.conf")
    with pytest.raises(ConfigError, match=r"maxSize changed, but .*some\.conf could not be written \(No such file"):
        await changing.change({"maxSize": "11"}, "me")
    assert changing.current.limit == 11


async def test_a_change_that_could_not_be_saved_is_saved_later(tmp_path: Path) -> None:
    file = tmp_path / "conf" / "some.conf"
    changing = LiveSettings(Some(), file)
    for limit in ("11", "12"):
        with pytest.raises(ConfigError):
            await changing.change({"maxSize": limit}, "me")
    with pytest.raises(ConfigError):
        await changing.change({"ownName": "new"}, "me")
    await changing.save_again()
    assert changing.problem.startswith("maxSize, ownName changed, but")
    file.parent.mkdir()
    file.write_text("maxSize=10\n")
    await changing.save_again()
    assert changing.problem == "" and load(file) == {"maxSize": "12", "ownName": "new"}
    file.write_text("maxSize=13\n")
    await changing.save_again()
    assert load(file) == {"maxSize": "13"}, "there was nothing to save any more"


async def test_a_reload_replaces_changes_that_could_not_be_saved(tmp_path: Path) -> None:
    changing = LiveSettings(Some(), tmp_path / "gone" / "some.conf")
    with pytest.raises(ConfigError):
        await changing.change({"maxSize": "11"}, "me")
    changing.reload(Some(limit=20))
    assert changing.problem == "" and changing.current.limit == 20


async def test_changes_at_the_same_time_are_all_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "some.conf"
    file.write_text("")
    changing = LiveSettings(Some(), file)
    await asyncio.gather(changing.change({"maxSize": "12"}, "a"), changing.change({"ownName": "b"}, "b"))
    assert load(file) == {"maxSize": "12", "ownName": "b"}
    assert "maxSize is changed to 12 by a" in caplog.text


def test_what_can_change_says_so_where_it_is_defined() -> None:
    assert live_keys(Some) == {"maxSize", "ownName"}


def test_a_file_is_rewritten_as_java_reads_it() -> None:
    assert rewritten("a=1\r\nb=2\n", {"a": "3"}).replace("\r", "").splitlines() == ["a=3", "b=2"]


def test_a_reload_takes_what_can_change_and_tells_the_rest(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    file = tmp_path / "some.conf"
    file.write_text(FILE)
    changing = LiveSettings(Some(), file)
    seen: list[int] = []
    changing.subscribe(lambda now: seen.append(now.limit))
    with caplog.at_level(logging.INFO):
        changing.reload(Some(port=7, limit=30))
        changing.reload(Some(port=1, limit=30))
    assert (changing.current.port, changing.current.limit, seen, changing.count) == (1, 30, [30], 1)
    assert "listenPort cannot change while the server runs" in caplog.text
    assert "nothing that can change has changed" in caplog.text
    assert file.read_text() == FILE, "what was read is not written"
    assert with_live(Some(port=3, limit=5), Some(port=7, limit=30)) == Some(port=3, limit=30)
