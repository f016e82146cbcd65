"""`sparrowmq context`, and commands that use one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparrowmq.cli.main import main
from sparrowmq.testing.background import BackgroundCluster
from tests.auth.asked import ADMIN, SAMPLE

_NONE = dict.fromkeys(
    (
        "NAMESRV_ADDR",
        "ROCKETMQ_ACCESS_KEY",
        "ROCKETMQ_SECRET_KEY",
        "SPARROWMQ_TLS_CONFIG",
        "SPARROWMQ_CONTEXT",
    )
)


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARROWMQ_CONTEXTS", str(tmp_path / "contexts.json"))


def invoke(*args: str, env: dict[str, str] | None = None, typed: str | None = None) -> Result:
    return CliRunner().invoke(main, args, env=_NONE | (env or {}), input=typed)


def test_a_context_is_noted_listed_used_and_forgotten() -> None:
    assert (
        invoke(
            "context", "set", "prod", "-n", "10.0.0.1:9876", "--access-key", "ops", "--secret-key", "s3cret"
        ).exit_code
        == 0
    )
    assert invoke("context", "set", "test", "-n", "10.0.0.2:9876", "--tls").exit_code == 0
    listed = invoke("context", "list", "-o", "json")
    assert json.loads(listed.stdout) == [
        {"in_use": "yes", "name": "prod", "name_servers": "10.0.0.1:9876", "account": "ops", "tls": "no"},
        {"in_use": "no", "name": "test", "name_servers": "10.0.0.2:9876", "account": "", "tls": "yes"},
    ]
    assert "s3cret" not in listed.stdout + invoke("context", "list").stdout
    assert "commands use context test, 10.0.0.2:9876" in invoke("context", "use", "test").stdout
    assert invoke("context", "delete", "test").exit_code == 0
    assert [each["in_use"] for each in json.loads(invoke("context", "list", "-o", "json").stdout)] == ["no"]


def test_a_secret_can_be_typed_and_a_shell_gets_all_of_it() -> None:
    typed = invoke(
        "context",
        "set",
        "prod",
        "-n",
        "10.0.0.1:9876",
        "--access-key",
        "ops",
        "--secret-key",
        "-",
        typed="it's\n",
    )
    assert typed.exit_code == 0 and "it's" not in typed.output
    lines = invoke("context", "env").stdout
    script = f'{lines}\nprintf "%s|%s|%s" "$NAMESRV_ADDR" "$ROCKETMQ_SECRET_KEY" "${{SPARROWMQ_TLS_CONFIG-unset}}"'
    printed = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert printed == "10.0.0.1:9876|it's|unset"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("use", "absent"), "there is no context 'absent' (known: none)"),
        (("delete", "absent"), "there is no context 'absent'"),
        (("env",), "no context is in use"),
        (("set", "prod", "-n", "nonsense:port"), "nonsense:port"),
        (("set", "prod", "-n", "10.0.0.1", "--access-key", "ops"), "secret_key of the credentials is empty"),
        (("set", "prod", "-n", "10.0.0.1", "--tls-config", "/absent"), "/absent"),
    ],
)
def test_a_wrong_one_is_refused_and_nothing_is_noted(words: tuple[str, ...], said: str) -> None:
    refused = invoke("context", *words)
    assert refused.exit_code == 2 and said in refused.stderr
    assert json.loads(invoke("context", "list", "-o", "json").stdout) == []


def test_commands_take_address_and_account_from_one_context(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_text(SAMPLE)
    with BackgroundCluster(tmp_path / "stores", acl=True, acl_file=tmp_path / "plain_acl.yml") as cluster:
        account = ("--access-key", ADMIN[0], "--secret-key", ADMIN[1])
        assert invoke("context", "set", "prod", "-n", cluster.namesrv, *account).exit_code == 0
        assert invoke("topic", "create", "orders").exit_code == 0
        assert (
            invoke("topic", "show", "orders", "--context", "prod", env={"NAMESRV_ADDR": "127.0.0.1:1"}).exit_code == 0
        )
        # The account of the environment belongs to another cluster, and that of the context is not sent elsewhere.
        others = {"ROCKETMQ_ACCESS_KEY": "other", "ROCKETMQ_SECRET_KEY": "12345678"}
        assert invoke("topic", "show", "orders", env=others | {"SPARROWMQ_CONTEXT": "prod"}).exit_code == 0
        elsewhere = invoke("topic", "show", "orders", "-n", cluster.namesrv)
        assert elsewhere.exit_code == 1 and "No accessKey is configured" in elsewhere.stderr
        unknown = invoke("topic", "list", "--context", "prdo")
        assert unknown.exit_code == 2 and "(known: prod)" in unknown.stderr
