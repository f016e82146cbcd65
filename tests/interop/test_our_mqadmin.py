"""Our admin tool says what Apache's says, command by command, of our servers and of Apache's.

The script is that of test_mqadmin.py, whose reference is Java's tool 4.9.7 on Apache's servers; the same things are
masked, and one more: Java's stack traces have frames, of which ours has none.
"""

from __future__ import annotations

import io

import pytest

from sparrowmq.cli.mqadmin.main import run
from sparrowmq.cli.mqadmin.subcommand_table import COMMANDS_OF_4
from tests.interop.servers import APACHE, OURS
from tests.interop.test_mqadmin import SCRIPT, Admin, play

pytestmark = pytest.mark.slow

WITH_OPTIONS_OF_5 = ("updateTopic", "updateSubGroup")
SIDES = [OURS, pytest.param(APACHE, marks=pytest.mark.nightly)]


def our_tool(*words):
    out, err = io.StringIO(), io.StringIO()
    run(words, out, err)
    return {"out": out.getvalue(), "err": err.getvalue()}


@pytest.fixture(scope="module", params=SIDES)
def told(request, tmp_path_factory, apaches_mqadmin):
    """What our tool says of one side, and Java's of Apache's."""
    folder = tmp_path_factory.mktemp("our-mqadmin")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # consumerStatus leaves files where it stands
        ours = play(request.param, folder / "our-tool", our_tool)
    return ours, apaches_mqadmin.result()


@pytest.mark.parametrize("command", SCRIPT)
def test_our_mqadmin_says_what_javas_says(told, command):
    ours, javas = told
    assert ours[command] == javas[command]


def test_each_command_explains_itself_byte_for_byte_as_in_java():
    with Admin() as javas:
        for command in COMMANDS_OF_4:
            ours, java = our_tool("help", command.name), javas.call("help", command.name)
            if command.name in WITH_OPTIONS_OF_5:
                assert set(options(java["out"])) < set(options(ours["out"]))
            else:
                assert {**ours, "exit": 0} == java


def options(text):
    return [line for line in text.splitlines() if line.startswith(" -")]
