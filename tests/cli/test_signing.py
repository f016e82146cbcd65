"""Commands sign by themselves: `JAVA_HOME` and its extensions, which Apache's need for that, play no part."""

import subprocess
import sys

import pytest

ACCOUNTS = """
accounts:
- {accessKey: administrator, secretKey: secretOfAdmin, admin: true}
"""
KEYS = ("--access-key", "administrator", "--secret-key")


@pytest.fixture
def guarded(start, broker_args, namesrv, tmp_path):
    """A broker that asks who one is."""
    (tmp_path / "plain_acl.yml").write_text(ACCOUNTS)
    acl = ("--set", "aclEnable=true", "--set", f"aclFile={tmp_path}/plain_acl.yml")
    return start(*broker_args, "-n", namesrv.address, *acl).ready()


def create(namesrv, *keys):
    """`sparrowmq topic create`, with nothing on the PATH and nothing in the environment."""
    command = [sys.executable, "-m", "sparrowmq", "topic", "create", "orders", "-n", namesrv.address, *keys]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": ""}, timeout=60)


@pytest.mark.slow
@pytest.mark.covers("S-K8S-02")
def test_a_command_signs_without_any_java(guarded, namesrv):
    assert "No accessKey is configured" in create(namesrv).stderr
    assert "Check signature failed for accessKey=administrator" in create(namesrv, *KEYS, "anotherSecret").stderr
    created = create(namesrv, *KEYS, "secretOfAdmin")
    assert created.returncode == 0, created.stderr
