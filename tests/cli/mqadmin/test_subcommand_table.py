from importlib import import_module

import pytest

from sparrowmq.cli.mqadmin.subcommand_table import COMMANDS, COMMANDS_OF_4, Command, find


def test_there_are_the_56_commands_of_4_9_8_and_14_of_5_4_0() -> None:
    assert len({command.name.lower() for command in COMMANDS_OF_4}) == 56
    assert len({command.name.lower() for command in COMMANDS}) == 56 + 14


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_is_where_the_table_says_and_can_be_parsed(command: Command) -> None:
    module, _, function = command.place.partition(":")
    assert callable(getattr(import_module(f"sparrowmq.cli.mqadmin.{module}"), function))
    letters = [option.letter for option in command.options]
    assert len(set(letters)) == len(letters) and command.meaning


def test_a_name_is_found_in_any_case_and_by_its_alias() -> None:
    for name, wanted in [("CLUSTERLIST", "clusterList"), ("deleteAccessConfig", "deleteAclConfig")]:
        found = find(name)
        assert found is not None and found.name == wanted
    assert find("nothing") is None


def test_options_are_read_from_the_table() -> None:
    command = find("updateTopic")
    assert command is not None
    by_letter = {option.letter: option for option in command.options}
    assert (by_letter["b"].group, by_letter["t"].required, by_letter["r"].required) == ("place", True, False)
    listing = find("topicList")
    assert listing is not None and not listing.own[0].has_value
