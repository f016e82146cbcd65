import click
import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main
from sparrowmq.cli.terminal.cluster_command import HELP, DefaultVerb
from sparrowmq.testing.background import BackgroundCluster
from tests.auth.asked import ADMIN, SAMPLE


def invoke(*args, env=None):
    return CliRunner().invoke(main, args, env={"NAMESRV_ADDR": ""} | (env or {}))


def test_without_an_address_it_says_where_to_give_one():
    result = invoke("topic", "list")
    assert result.exit_code == 2 and result.stderr.startswith("main topic list: no name server is known; give one")


def test_the_environment_may_tell_the_address():
    result = invoke("topic", "list", env={"NAMESRV_ADDR": "127.0.0.1:1"})
    assert result.exit_code == 1 and not result.stdout
    assert result.stderr.startswith(
        "main topic list: cannot ask name server 127.0.0.1:1 (Connection refused); start one with `sparrowmq dev` or"
    )
    assert result.stderr.count("\n") == 1


def test_no_time_is_refused():
    result = invoke("topic", "list", "-n", "127.0.0.1:1", "--timeout", "0")
    assert result.exit_code == 2 and "'--timeout': 0.0 is not in the range x>0" in result.stderr


def test_requests_are_signed_by_the_keys_of_the_line_or_of_the_environment(tmp_path):
    keys = {"ROCKETMQ_ACCESS_KEY": ADMIN[0], "ROCKETMQ_SECRET_KEY": ADMIN[1]}
    (tmp_path / "plain_acl.yml").write_text(SAMPLE)
    with BackgroundCluster(tmp_path / "stores", acl=True, acl_file=tmp_path / "plain_acl.yml") as cluster:
        asked = ("topic", "create", "orders", "-n", cluster.namesrv)
        assert "No accessKey is configured" in invoke(*asked).stderr
        wrong = invoke(*asked, "--access-key", ADMIN[0], "--secret-key", "87654321")
        assert wrong.exit_code == 1 and "Check signature failed" in wrong.stderr
        assert invoke(*asked, env=keys).exit_code == 0
        named = invoke(
            "topic",
            "show",
            "orders",
            "-n",
            cluster.namesrv,
            "--access-key",
            ADMIN[0],
            "--secret-key",
            ADMIN[1],
        )
        assert named.exit_code == 0, named.stderr
    half = invoke(*asked, "--access-key", ADMIN[0])
    assert half.exit_code == 2 and "secret_key of the credentials is empty" in half.stderr


@click.group(cls=DefaultVerb, verb="show", context_settings=HELP)
def noun() -> None:
    """A noun."""


@noun.command()
@click.option("--all", "is_all", is_flag=True)
def show(is_all: bool) -> None:
    """Show it."""
    click.echo(f"shown {is_all}")


@noun.command()
def change() -> None:
    """Change it."""
    click.echo("changed")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "shown False"),
        (["--all"], "shown True"),
        (["show"], "shown False"),
        (["change"], "changed"),
        (["-h"], "Commands:"),
    ],
)
def test_options_without_a_verb_are_those_of_one_verb(line: list[str], said: str) -> None:
    assert said in CliRunner().invoke(noun, line).output
