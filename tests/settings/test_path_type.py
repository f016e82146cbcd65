"""sparrowmq.settings.path_type: paths on a command line."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main
from sparrowmq.settings.path_type import WrittenPath
from tests.settings.test_number_type import commands


@pytest.mark.guards("WrittenPath.convert: not str(value).strip() -> False")
@pytest.mark.parametrize(
    "words", [["store", "check", ""], ["pipeline", "redrive", " "], ["lake", "check", ""]]
)
def test_a_blank_path_is_not_the_current_folder(words: list[str]) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "the path is blank; write it" in done.stderr


def test_all_paths_are_of_this_type() -> None:
    kinds = [(command.name, each.name, each.type) for command in commands(main) for each in command.params]
    paths = [(command, name, kind) for command, name, kind in kinds if isinstance(kind, click.Path)]
    assert len(paths) > 20
    assert [(command, name) for command, name, kind in paths if not isinstance(kind, WrittenPath)] == []
