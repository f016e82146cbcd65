import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import COMMANDS, main


def invoke(*args):
    return CliRunner().invoke(main, args, prog_name="sparrowmq")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_exists_and_explains_itself(name):
    command = main.get_command(click.Context(main), name)
    assert command and command.name == name and command.help
    assert invoke(name, "--help").exit_code == invoke(name, "-h").exit_code == 0


def test_the_list_has_a_line_for_each_command():
    text = invoke("-h").output
    assert all(line in text for _, line in COMMANDS.values())


def test_the_list_loads_no_command():
    code = "import sys; from sparrowmq.cli.main import main\ntry: main(['-h'])\nfinally: print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=True)
    assert "sparrowmq.cli.main" in run.stdout and "sparrowmq.cli.servers.serve" not in run.stdout
    assert "asyncio" not in run.stdout


def test_an_unknown_command_is_told_with_the_one_that_was_meant():
    result = invoke("brokr")
    assert result.exit_code == 2 and "there is no command 'brokr'; did you mean broker?" in result.output


def test_the_version_is_told():
    assert invoke("--version").output.startswith("sparrowmq, version ")


def test_the_package_is_the_command():
    run = subprocess.run(
        [sys.executable, "-m", "sparrowmq", "--help"], capture_output=True, text=True, timeout=20, check=True
    )
    assert run.stdout.startswith("Usage: sparrowmq ")
