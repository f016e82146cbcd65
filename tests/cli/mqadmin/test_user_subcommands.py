"""Users and policies: the commands of 5.4.0 and their tables."""

import pytest

from sparrowmq.testing.background import BackgroundCluster
from tests.cli.mqadmin.conftest import Tool


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("users")


@pytest.fixture(scope="module")
def cluster(folder):
    (folder / "home" / "conf").mkdir(parents=True)
    (folder / "home" / "conf" / "tools.yml").write_text("accessKey: admin\nsecretKey: secretOfAdmin\n")
    first = '{"username":"admin","password":"secretOfAdmin"}'
    inner = '{"accessKey":"inner","secretKey":"secretOfInner"}'
    settings = {
        "authentication": True,
        "authorization": True,
        "first_user": first,
        "inner_credentials": inner,
    }
    with BackgroundCluster(folder / "stores", brokers=2, **settings) as cluster:
        yield cluster


@pytest.fixture
def guarded(cluster, folder, monkeypatch):
    """The tool as a Super user."""
    monkeypatch.setenv("ROCKETMQ_HOME", str(folder / "home"))
    return Tool(cluster)


def rows(said):
    return [line.split() for line in said.splitlines()]


def test_a_user_is_created_shown_changed_and_deleted(guarded):
    where = f"{guarded.broker} success.\n"
    assert guarded.ok("createUser -b {broker} -u alice -p secretOfAlice -t Normal") == f"create user to {where}"
    said = guarded("createUser -b {broker} -u alice -p other")
    assert said.code == 1 and "MQBrokerException: CODE: 16  DESC: The user alice exists" in said.err
    # As Java's tool printed it with 5.4.0.
    assert guarded.ok("getUser -b {broker} -u alice") == (
        "#UserName         #Password               #UserType               #UserStatus           \n"
        "alice             secretOfAlice           Normal                  enable                \n"
    )
    assert guarded.ok("updateUser -b {broker} -u alice -t Super -s disable") == f"update user to {where}"
    assert rows(guarded.ok("getUser -b {broker} -u alice"))[1] == [
        "alice",
        "secretOfAlice",
        "Super",
        "disable",
    ]
    assert guarded.ok("deleteUser -b {broker} -u alice") == f"delete user to {where}"
    assert guarded.ok("getUser -b {broker} -u alice") == ""


def test_a_cluster_means_each_of_its_masters(guarded, cluster):
    addresses = {broker.address for broker in cluster.cluster.brokers}
    said = rows(guarded.ok("createUser -c DefaultCluster -u bob -p secretOfBob"))
    assert {row[3] for row in said} == addresses
    for address in addresses:
        assert rows(guarded.ok(f"listUser -b {address} -f bo"))[1][0] == "bob"
    said = rows(guarded.ok("listUser -c DefaultCluster"))
    assert [row[0] for row in said[1:-1]] == ["admin", "bob", "inner"]
    assert said[-1][:3] == ["get", "user", "from"]
    guarded.ok("deleteUser -c DefaultCluster -u bob")
    assert guarded.ok("listUser -c DefaultCluster -f bob") == ""
    assert guarded("createUser -c Nowhere -u bob -p secretOfBob").code == 1


def test_policies_are_created_shown_changed_and_deleted(guarded):
    guarded.ok("createUser -b {broker} -u carol -p secretOfCarol")
    acl = "createAcl -b {broker} -s User:carol"
    where = f"{guarded.broker} success.\n"
    assert guarded.ok(f"{acl} -r Topic:orders,Group:* -a Pub,Sub -d Allow -i 10.0.0.0/8") == f"create acl to {where}"
    guarded.ok(f"{acl} -r Topic:ord* -a all -d Deny")
    # As Java's tool printed it with 5.4.0.
    wanted = (
        "#Subject          #PolicyType  #Resource               #Actions              #SourceIp                 "
        "#Decision \n"
        "User:carol        Custom      Topic:orders            [Pub, Sub]            [10.0.0.0/8]              "
        "Allow     \n"
        "User:carol        Custom      Group:*                 [Pub, Sub]            [10.0.0.0/8]              "
        "Allow     \n"
        "User:carol        Custom      Topic:ord*              [All]                 null                      "
        "Deny      \n"
    )
    assert guarded.ok("getAcl -b {broker} -s User:carol") == wanted
    assert guarded.ok("listAcl -b {broker} -s carol") == wanted
    assert len(rows(guarded.ok("listAcl -b {broker} -r Group"))) == 2
    guarded.ok("updateAcl -b {broker} -s User:carol -r Topic:ord* -a Sub -d Allow")
    assert guarded.ok("deleteAcl -b {broker} -s User:carol -r Topic:orders") == f"delete acl to {where}"
    assert [row[2:] for row in rows(guarded.ok("getAcl -b {broker} -s User:carol"))[1:]] == [
        ["Group:*", "[Pub,", "Sub]", "[10.0.0.0/8]", "Allow"],
        ["Topic:ord*", "[Sub]", "null", "Allow"],
    ]
    guarded.ok("deleteAcl -b {broker} -s User:carol")
    assert guarded.ok("listAcl -b {broker} -s carol") == ""
    said = guarded("getAcl -b {broker} -s User:nobody")
    assert said.code == 1 and "CODE: 16" in said.err
    guarded.ok("deleteUser -b {broker} -u carol")


def test_users_and_policies_are_copied_from_broker_to_broker(guarded, cluster):
    first, second = (broker.address for broker in cluster.cluster.brokers)
    for name in ("dave", "erin"):
        guarded.ok(f"createUser -b {first} -u {name} -p secretOf{name}")
        guarded.ok(f"createAcl -b {first} -s User:{name} -r Topic:{name} -a Pub -d Allow")
    assert guarded.ok(f"copyUser -f {first} -t {second} -u dave,nobody") == (
        f"copy user of dave from {first} to {second} success.\n"
    )
    assert len(rows(guarded.ok(f"copyUser -f {first} -t {second}"))) == 4
    assert rows(guarded.ok(f"getUser -b {second} -u erin"))[1][1] == "secretOferin"
    assert guarded.ok(f"copyAcl -f {first} -t {second} -s User:dave") == (
        f"copy acl of User:dave from {first} to {second} success.\n"
    )
    assert len(rows(guarded.ok(f"copyAcl -f {first} -t {second}"))) == 2
    assert len(rows(guarded.ok(f"listAcl -b {second}"))) == 3


def test_without_a_signature_everything_is_denied(guarded, monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME")
    said = guarded("listUser -b {broker}")
    assert said.code == 1 and "CODE: 16  DESC: username cannot be null." in said.err
