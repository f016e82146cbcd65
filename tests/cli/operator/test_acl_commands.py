"""`sparrowmq acl` against brokers with access control: one that runs, and its slave or another."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main

ACCOUNTS = """
globalWhiteRemoteAddresses: [10.9.8.7]
accounts:
- {accessKey: administrator, secretKey: secretOfAdmin, admin: true}
"""


@pytest.fixture
def guarded(start, broker_args, namesrv, tmp_path):
    """A broker that asks who one is."""
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    acl = ("--set", "aclEnable=true", "--set", f"aclFile={tmp_path}/plain_acl.yml")
    return start(*broker_args, "-n", namesrv.address, *acl).ready()


@pytest.fixture
def run(guarded, namesrv):
    """Calls `sparrowmq acl ...` as the administrator."""

    def run(*words, secret="secretOfAdmin", given=None):
        keys = ("--access-key", "administrator", "--secret-key", secret)
        return CliRunner().invoke(main, ["acl", *words, "-n", namesrv.address, *keys], input=given)

    return run


def told(run):
    """What the list says of accounts, by their names, and of addresses."""
    result = run("list", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    return {each["account"]: each for each in found["accounts"]}, [each["needs_no_account"] for each in found["white"]]


def test_an_account_is_made_changed_and_deleted(run, guarded):
    words = (
        "--other-topics",
        "deny",
        "--topic",
        "orders=PUB|SUB",
        "--topic",
        "logs=sub",
        "--group",
        "bills=sub",
    )
    made = run("set", "newcomer", "--secret", "secretOfNew", *words)
    assert made.exit_code == 0 and made.output.startswith("set account newcomer at ")
    assert guarded.address in made.output
    accounts, white = told(run)
    new = accounts["newcomer"]
    assert (new["admin"], new["other_topics"], new["topics"], new["groups"]) == (
        "no",
        "DENY",
        "orders=PUB|SUB, logs=SUB",
        "bills=SUB",
    )
    assert white == ["10.9.8.7"]
    assert run("set", "newcomer", "--other-groups", "sub").exit_code == 0
    changed = told(run)[0]["newcomer"]
    assert (changed["other_groups"], changed["topics"]) == ("SUB", new["topics"])
    gone = run("delete", "newcomer", "--yes")
    assert gone.exit_code == 0 and "deleted account newcomer at " in gone.output
    assert list(told(run)[0]) == ["administrator"]


def test_a_change_leaves_an_admin_an_admin_unless_it_says_otherwise(run):
    run("set", "deputy-of-admin", "--secret", "secretOfDeputy", "--admin")
    assert run("set", "deputy-of-admin", "--unsigned-from", "10.0.0.*").exit_code == 0
    deputy = told(run)[0]["deputy-of-admin"]
    assert (deputy["admin"], deputy["unsigned_from"]) == ("yes", "10.0.0.*")
    run("set", "deputy-of-admin", "--no-admin")
    assert told(run)[0]["deputy-of-admin"]["admin"] == "no"


def test_a_secret_may_be_asked_for_and_is_shown_nowhere(run, guarded, namesrv):
    made = run("set", "newcomer", "--secret", "-", "--topic", "orders=pub", given="typedSecret\ntypedSecret\n")
    assert made.exit_code == 0 and "typedSecret" not in made.output
    keys = ("--access-key", "newcomer", "--secret-key", "typedSecret")
    command = [sys.executable, "-m", "sparrowmq", "topic", "show", "orders", "-n", namesrv.address, *keys]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "Check signature failed" not in asked.stderr
    for form in ("table", "json", "csv"):
        shown = run("list", "-o", form).output
        assert "newcomer" in shown and "typedSecret" not in shown and "secretOf" not in shown


def test_addresses_that_need_no_account_are_replaced_when_that_is_wanted(run):
    refused = run("white", "10.0.0.*", given="n\n")
    assert refused.exit_code == 1 and told(run)[1] == ["10.9.8.7"]
    assert run("white", "10.0.0.*", "192.168.1.1-9", "--yes").exit_code == 0
    assert told(run)[1] == ["10.0.0.*", "192.168.1.1-9"]


def test_who_is_no_admin_is_refused_with_the_brokers_words(run):
    refused = run("list", secret="anotherSecret")
    assert refused.exit_code == 1 and "Check signature failed for accessKey=administrator" in refused.stderr


def test_a_broker_without_accounts_is_named_and_the_others_are_listed(run, start, broker_args, namesrv, tmp_path):
    own = ("--set", f"storePathRootDir={tmp_path}/plain", "--set", "brokerName=plain")
    start(*broker_args, "-n", namesrv.address, *own).ready()
    found = run("list")
    assert found.exit_code == 0 and "administrator" in found.stdout, found.output
    assert "plain at 127.0.0.1" in found.output and "keeps no accounts" in found.output
    alone = run("list", "--broker", "plain")
    assert alone.exit_code == 1 and "this broker keeps no accounts" in alone.stderr


def test_a_wrong_command_line_is_told(run):
    for words, problem in (
        (("set", "newcomer"), "nothing is to be changed"),
        (("set", "newcomer", "--other-topics", "read"), "'read' is not one of deny, pub, sub, pubsub"),
        (("set", "newcomer", "--topic", "orders"), "'orders' is not NAME=PERM"),
        (("set", "newcomer", "--group", "a,b=pub"), "'a,b=pub' is not NAME=PERM"),
        (("set", "newcomer", "--topic", "orders="), "'' is not one of"),
        (("white",), "Missing argument"),
        (("white", "192.168.1.{1,2}", "--yes"), "write each address by itself"),
    ):
        result = run(*words)
        assert result.exit_code == 2 and problem in result.stderr, (words, result.stderr)
    for words, problem in (
        (("list", "--broker", "absent"), "there is no broker 'absent'"),
        (("list", "--cluster", "nowhere"), "no cluster 'nowhere'"),
    ):
        result = run(*words)
        assert result.exit_code == 1 and problem in result.stderr, (words, result.stderr)
