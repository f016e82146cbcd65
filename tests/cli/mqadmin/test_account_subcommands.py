import pytest

from sparrowmq.testing.background import BackgroundCluster
from tests.cli.mqadmin.conftest import Tool

OPERATOR = """
accounts:
- accessKey: operator
  secretKey: 12345678
  admin: true
"""


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """The tool as an operator of a broker with access control."""
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(OPERATOR)
    (home / "conf" / "tools.yml").write_text("accessKey: operator\nsecretKey: 12345678\n")
    with BackgroundCluster(tmp_path, acl=True, home=home) as cluster:
        monkeypatch.setenv("ROCKETMQ_HOME", str(home))
        yield Tool(cluster)


def test_accounts_are_made_changed_and_removed(guarded):
    said = guarded.ok("updateAclConfig -c DefaultCluster -a rocket-1 -s 12345678 -t T=PUB,U=SUB -m true")
    assert said.startswith(f"create or update plain access config to {guarded.broker} success.\nPlainAccessConfig{{")
    assert "topicPerms=[T=PUB, U=SUB]" in said and "12345678" not in said
    rows = guarded.ok("clusterAclConfigVersion -c DefaultCluster").splitlines()
    assert rows[0].split()[0] == "#Cluster" and rows[1].split()[:2] == ["DefaultCluster", "broker-0"]
    assert guarded.ok("clusterAclConfigVersion -b {broker}").endswith("version success.\n")
    said = guarded.ok("updateGlobalWhiteAddr -b {broker} -g 10.10.103.*")
    assert said == f"update global white remote addresses to {guarded.broker} success.\n"
    said = guarded.ok("deleteAclConfig -b {broker} -a rocket-1")
    assert said.endswith("account's accesskey is:rocket-1")


def test_without_the_account_everything_is_denied(guarded, monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME")
    said = guarded("getBrokerConfig -b {broker}")
    assert said.code == 1 and "MQBrokerException: CODE: 1  DESC: " in said.err
