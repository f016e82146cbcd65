"""sparrowmq.cli.terminal.cluster_command: a noun of our own, whose commands do nothing but what all share."""

import click
import pytest
from click.testing import CliRunner

from sparrowmq.cli.terminal.arguments import TOPIC
from sparrowmq.cli.terminal.cluster_command import add_list, check_changes, name_and_cluster, print_change, verb
from sparrowmq.testing.background import BackgroundCluster


@click.group()
def fruit() -> None:
    """Not to be found in a cluster."""


async def names(admin, cluster, hidden):
    return [f"of {cluster}", *(["hidden"] if hidden else [])]


add_list(fruit, "The hidden ones too.", names)


@verb(fruit)
@name_and_cluster(TOPIC)
@click.option("--colour")
def change(name, **given):
    check_changes(given)
    print_change("changed", name, ["a", "b"])


def run(*args):
    return CliRunner().invoke(fruit, args)


def test_names_are_listed_one_on_a_line(tmp_path):
    with BackgroundCluster(tmp_path) as cluster:
        assert run("list", "-n", cluster.namesrv, "--cluster", "c").output == "of c\n"
        assert run("list", "-n", cluster.namesrv, "--all").output == "of None\nhidden\n"
    assert "Print the names of all fruits" in run("list", "--help").output


def test_it_is_told_what_was_done_and_where():
    assert run("change", "apple", "--colour", "red").output == "changed fruit apple at a, b\n"


@pytest.mark.parametrize("args", [["apple"], ["apple", "--cluster", "c"]])
def test_a_change_of_nothing_is_refused_with_where_to_look(args):
    refused = run("change", *args)
    assert refused.exit_code == 2 and "nothing is to be changed; `fruit change -h` lists" in refused.output
