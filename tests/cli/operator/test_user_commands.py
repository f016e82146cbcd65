"""`sparrowmq user` against a broker with users."""

import json

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main

SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"secretOfAdmin"}',
    "autoCreateTopicEnable": "false",
}


@pytest.fixture
def run(start, broker_args, namesrv):
    """Calls a command of `sparrowmq` as the Super user, or as another."""
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    start(*broker_args, "-n", namesrv.address, *settings).ready()

    def run(*words, user="admin", password="secretOfAdmin", given=None):
        keys = ("--access-key", user, "--secret-key", password)
        return CliRunner().invoke(main, [*words, "-n", namesrv.address, *keys], input=given)

    return run


def listed(run):
    """The users by name, and the policies."""
    result = run("user", "list", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    policies = [
        (each["user"], each["policy"], each["resource"], each["actions"], each["from"], each["decision"])
        for each in found["policies"]
    ]
    return {each["user"]: (each["type"], each["status"]) for each in found["users"]}, policies


def test_a_user_is_added_changed_and_deleted(run):
    added = run("user", "add", "alice", "--password", "secretOfAlice")
    assert added.exit_code == 0 and added.output.startswith("added user alice at "), added.output
    assert listed(run) == ({"admin": ("Super", "enable"), "alice": ("Normal", "enable")}, [])
    again = run("user", "add", "alice", "--password", "another-one")
    assert again.exit_code == 1 and "The user alice exists" in again.stderr

    changed = run("user", "change", "alice", "--super", "--disable")
    assert changed.exit_code == 0 and changed.output.startswith("changed user alice at ")
    assert listed(run)[0]["alice"] == ("Super", "disable")
    assert run("user", "change", "alice", "--normal", "--enable").exit_code == 0
    assert listed(run)[0]["alice"] == ("Normal", "enable")

    kept = run("user", "delete", "alice", given="n\n")
    assert kept.exit_code == 1 and "alice" in listed(run)[0]
    assert run("user", "delete", "alice", "--yes").exit_code == 0
    assert list(listed(run)[0]) == ["admin"]
    absent = run("user", "delete", "alice", "--yes")
    assert absent.exit_code == 1 and "there is no user alice" in absent.stderr


def test_a_user_may_do_what_it_is_allowed_until_that_is_revoked(run):
    assert run("topic", "create", "orders").exit_code == 0
    assert run("user", "add", "alice", "--password", "secretOfAlice").exit_code == 0
    alice = {"user": "alice", "password": "secretOfAlice"}
    assert run("message", "send", "orders", "hello", **alice).exit_code == 1

    allowed = run("user", "allow", "alice", "Topic:*", "Group:*", "--action", "pub", "--action", "get")
    assert allowed.exit_code == 0 and allowed.output.startswith("allowed user alice at "), allowed.output
    assert run("message", "send", "orders", "hello", **alice).exit_code == 0

    denied = run("user", "deny", "alice", "Topic:orders", "--action", "all", "--from", "127.0.0.0/8")
    assert denied.exit_code == 0, denied.output
    assert run("message", "send", "orders", "hello", **alice).exit_code == 1
    assert listed(run)[1] == [
        ("alice", "Custom", "Topic:*", "Pub, Get", None, "Allow"),
        ("alice", "Custom", "Group:*", "Pub, Get", None, "Allow"),
        ("alice", "Custom", "Topic:orders", "All", "127.0.0.0/8", "Deny"),
    ]

    wrong = run("user", "revoke", "alice", "Topic:order")
    assert wrong.exit_code == 1 and "no entry for Topic:order; it has Topic:*, Group:*" in wrong.stderr
    empty = run("user", "revoke", "alice", "", "--yes")
    assert empty.exit_code != 0 and "RESOURCE" in empty.stderr and len(listed(run)[1]) == 3
    assert run("user", "revoke", "alice", "Topic:orders").exit_code == 0
    assert run("message", "send", "orders", "hello", **alice).exit_code == 0
    assert run("user", "revoke", "alice", given="n\n").exit_code == 1
    assert run("user", "revoke", "alice", "--yes").exit_code == 0
    assert listed(run)[1] == []


def test_a_password_may_be_asked_for_and_is_shown_nowhere(run):
    for words in (("add", "alice"), ("change", "alice", "--password", "-")):
        made = run("user", *words, given="typedSecret\ntypedSecret\n")
        assert made.exit_code == 0 and "typedSecret" not in made.output
    signed = run("user", "list", user="alice", password="typedSecret")
    assert signed.exit_code == 1 and "alice" in signed.stderr and "signature" not in signed.stderr.lower()
    for form in ("table", "json", "csv"):
        shown = run("user", "list", "-o", form).output
        assert "alice" in shown and "typedSecret" not in shown and "secretOf" not in shown


def test_a_wrong_command_line_is_refused(run):
    for words, problem in (
        (("change", "alice"), "nothing is to be changed"),
        (("allow", "alice", "Topic:orders"), "Missing option '--action'"),
        (("allow", "alice", "--action", "Pub"), "Missing argument 'RESOURCES...'"),
        (("deny", "alice", "Topic:orders", "--action", "send"), "'send' is not one of"),
    ):
        result = run("user", *words)
        assert result.exit_code == 2 and problem in result.stderr, (words, result.stderr)
    absent = run("user", "allow", "absent", "Topic:orders", "--action", "Pub")
    assert absent.exit_code == 1 and "The user absent does not exist" in absent.stderr
