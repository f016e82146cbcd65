"""The exit status of every command of `sparrowmq` that asks a cluster: `sparrowmq/core/exit_status.py` has the rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from click.testing import CliRunner, Result

from sparrowmq.cli.main import main
from sparrowmq.loop.clock import SystemClock
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.testing.background import BackgroundCluster
from tests.records import encoded

PIECE: Final = f"{0:020d}-{1:020d}.forked"  # has a message of the topic `absent`
# Each command, with arguments that are right and name nothing that is there.
COMMANDS = {
    "broker config": "absent",
    "broker drain": "absent",
    "broker forget": "absent",
    "broker list": "--cluster absent",
    "broker set": "absent fileReservedTime=48",
    "broker stats": "absent",
    "broker undrain": "absent",
    "topic change": "absent --queues 4",
    "topic create": "orders --cluster absent",
    "topic delete": "absent --yes",
    "topic list": "--cluster absent",
    "topic move": "orders --from broker-0 --to absent --yes",
    "topic scale": "absent --queues 4",
    "topic show": "absent",
    "group change": "absent --max-retries 3",
    "group create": "billing --cluster absent",
    "group dead-letters": "absent",
    "group delete": "absent --yes",
    "group lag": "absent",
    "group list": "--cluster absent",
    "group members": "absent",
    "group reset": "absent absent earliest --yes",
    "group show": "absent",
    "message copy": "absent other",
    "message find": "absent --key k",
    "message replay": "absent absent --yes",
    "message send": "absent hello",
    "message show": "AC1100010A0B0C0D absent",
    "message tail": "absent --limit 1",
    "dlq list": "absent",
    "dlq redrive": "absent --yes",
    "cluster elect": "-b absent --member 1",
    "cluster health": "--expect absent",
    "cluster decommission": "absent --yes",
    "cluster restart": "--cluster absent --yes",
    "cluster show": "--cluster absent",
    "cluster transfer": "-b absent",
    "cluster upgrade": "--cluster absent --yes",
    "acl delete": "absent --yes --broker absent",
    "acl list": "--broker absent",
    "acl set": "absent --secret 12345678 --cluster absent",
    "acl white": "10.0.0.1 --yes --broker absent",
    "user add": "absent --password 12345678 --cluster absent",
    "user allow": "absent Topic:orders --action Pub --cluster absent",
    "user change": "absent --disable --cluster absent",
    "user delete": "absent --yes --cluster absent",
    "user deny": "absent Topic:orders --action Pub --cluster absent",
    "user list": "--cluster absent",
    "user revoke": "absent --yes --cluster absent",
    "connection list": "--cluster absent",
    "top": "--cluster absent --count 1",
    "bundle": "absent/bundle.tar.gz",
    "doctor": "--topic absent",
    "bench consume": "absent --seconds 1",
    "bench send": "absent --seconds 1",
    "store resend": f"{PIECE} --yes",
}
# Without a name of something absent these are answered by any cluster with a broker.
LISTS = ("broker list", "topic list", "group list", "cluster show", "acl list", "connection list")
# Servers go on until they can serve. Pipelines have a rule of their own (docs/use/pipelines.md), and
# contexts ask no cluster.
OTHERS = ("namesrv", "broker run", "console", "proxy", "pipeline", "context")
EVERY = [pytest.param(name, words, id=name) for name, words in COMMANDS.items()]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    """A broker that makes no topics by itself."""
    with BackgroundCluster(tmp_path_factory.mktemp("cluster"), auto_create_topic=False) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def empty(cluster: BackgroundCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server without a broker."""
    settings = NamesrvSettings(port=0, kv_path=tmp_path_factory.mktemp("empty") / "kv.json")
    namesrv = Namesrv(settings, SystemClock())
    cluster.run(namesrv.__aenter__())
    yield namesrv.address
    cluster.run(namesrv.__aexit__(None, None, None))


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands run in a folder with a piece of a log."""
    (tmp_path / PIECE).write_bytes(encoded("absent"))
    monkeypatch.chdir(tmp_path)


def run(namesrv: str, name: str, words: str) -> Result:
    given = [*name.split(), *words.split(), "-n", namesrv]
    found = CliRunner().invoke(main, given, prog_name="sparrowmq")
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def asking(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of all commands that take a name server."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from asking(found, (*path, name))
    elif any("-n" in each.opts for each in command.params):
        yield " ".join(path)


def test_every_command_that_asks_a_cluster_is_here() -> None:
    others = {name for name in asking(main) if name.startswith(OTHERS)}
    assert set(asking(main)) - others == set(COMMANDS)


@pytest.mark.parametrize(("name", "words"), EVERY)
def test_what_does_not_exist_ends_with_1(cluster: BackgroundCluster, name: str, words: str) -> None:
    found = run(cluster.namesrv, name, words)
    assert found.exit_code == 1 and "absent" in found.output, found.output


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), EVERY)
def test_without_a_broker_it_ends_with_1(empty: str, name: str, words: str) -> None:
    found = run(empty, name, words)
    assert found.exit_code == 1 and found.output, found.output


@pytest.mark.parametrize("name", LISTS)
def test_a_list_without_a_broker_says_so(cluster: BackgroundCluster, empty: str, name: str) -> None:
    found = run(empty, name, "")
    assert found.exit_code == 1 and f"no broker is registered at name server {empty}" in found.stderr
    if name != "acl list":  # there is none to show on a broker without accounts
        assert run(cluster.namesrv, name, "").exit_code == 0


@pytest.mark.parametrize(("name", "words"), EVERY)
def test_without_a_name_server_it_ends_with_1(name: str, words: str) -> None:
    found = run("127.0.0.1:9", name, words)
    assert found.exit_code == 1 and "127.0.0.1:9" in found.output, found.output


@pytest.mark.parametrize(("name", "words"), EVERY)
def test_an_address_that_is_none_ends_with_2(name: str, words: str) -> None:
    found = run("127.0.0.1:99999", name, words)
    assert found.exit_code == 2 and "is not an address" in found.stderr, found.output


@pytest.mark.parametrize("wrong", ["--context absent", "--secret-key 12345678"])
@pytest.mark.parametrize(("name", "words"), EVERY)
def test_a_context_or_an_account_that_is_none_ends_with_2(name: str, words: str, wrong: str) -> None:
    found = CliRunner().invoke(main, [*name.split(), *words.split(), *wrong.split()], prog_name="sparrowmq")
    assert isinstance(found.exception, SystemExit) and found.exit_code == 2, found.output
    assert "there is no context 'absent'" in found.stderr or "access_key" in found.stderr


@pytest.mark.parametrize(("name", "words"), EVERY)
def test_an_unknown_option_ends_with_2(cluster: BackgroundCluster, name: str, words: str) -> None:
    assert run(cluster.namesrv, name, f"{words} --nonsense").exit_code == 2


def test_the_page_of_errors_has_the_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "use" / "errors.md").read_text()
    assert "| 2 | the command line, a name or a setting is wrong: the same command fails at every cluster |" in page
