"""sparrowmq.cli.terminal.arguments: paths on a command line."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main
from sparrowmq.settings.argument_types import WrittenPath
from tests.settings.test_number_type import commands


@pytest.mark.parametrize("words", [["store", "check", ""], ["pipeline", "redrive", " "], ["lake", "check", ""]])
def test_a_blank_path_is_not_the_current_folder(words: list[str]) -> None:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert "the path is blank; write it" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["pipeline", "redrive"],
        ["pipeline", "dedup", "a", "b", "-n", "127.0.0.1:1", "--state"],
        ["lake", "check"],
        ["store", "backup", "a"],
    ],
    ids=" ".join,
)
def test_an_address_is_no_path_and_is_shown_as_it_was_written(words: list[str]) -> None:
    done = CliRunner().invoke(main, [*words, "s3://bucket/orders"])
    assert done.exit_code == 2
    assert "s3://bucket/orders is an address; give the path of a file" in " ".join(done.stderr.split())


def test_all_paths_are_of_this_type() -> None:
    kinds = [(command.name, each.name, each.type) for command in commands(main) for each in command.params]
    paths = [(command, name, kind) for command, name, kind in kinds if isinstance(kind, click.Path)]
    assert len(paths) > 20
    assert [(command, name) for command, name, kind in paths if not isinstance(kind, WrittenPath)] == []
