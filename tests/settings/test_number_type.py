from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main
from sparrowmq.settings.argument_types import Number, Whole


def commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_refused_with_its_option(text: str) -> None:
    done = CliRunner().invoke(main, ["topic", "list", "-n", "127.0.0.1:1", "--timeout", text])
    assert done.exit_code == 2
    assert "Invalid value for '--timeout'" in done.stderr


@pytest.mark.parametrize("option", ["--timeout", "--limit"])
@pytest.mark.parametrize("text", ["\u0663", "1_0"])
def test_digits_are_0_to_9(option: str, text: str) -> None:
    done = CliRunner().invoke(main, ["message", "find", "T", "-n", "127.0.0.1:1", option, text])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}': {text!r} is not a number; use the digits 0 to 9" in done.stderr


def test_all_numbers_are_of_these_types() -> None:
    kinds = [(command.name, each.name, each.type) for command in commands(main) for each in command.params]
    assert any(isinstance(kind, Number) for _, _, kind in kinds)
    assert [
        (command, name)
        for command, name, kind in kinds
        if isinstance(kind, click.types.FloatParamType | click.types.IntParamType)
        and not isinstance(kind, Number | Whole)
    ] == []
