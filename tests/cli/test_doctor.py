"""`sparrowmq doctor`, as an operator runs it."""

import json

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import main
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def doctor(cluster, *args):
    return CliRunner().invoke(main, ["doctor", "-n", cluster.namesrv, *args], prog_name="sparrowmq")


def test_a_cluster_that_is_well_ends_with_0(cluster):
    said = doctor(cluster)
    assert said.exit_code == 0 and "0 wrong" in said.output


def test_what_is_wrong_is_told_with_what_mends_it_and_ends_with_1(cluster):
    said = doctor(cluster, "--topic", "missing")
    assert said.exit_code == 1
    assert "WRONG    no broker has topic missing (No route info of this topic)" in said.output
    assert "mend:  create it with `sparrowmq topic create missing`" in said.output
    assert "check:" not in said.output


def test_verbose_shows_how_it_was_looked_at_and_what_is_well(cluster):
    said = doctor(cluster, "-v")
    assert "ok       name server" in said.output and "check: asked" in said.output


def test_a_script_gets_an_object_for_each_finding(cluster):
    said = doctor(cluster, "--output", "json", "--group", "missing")
    found = json.loads(said.output)
    assert said.exit_code == 1 and {each["verdict"] for each in found} >= {"ok", "wrong"}
    assert all(set(each) == {"verdict", "what", "check", "mend"} for each in found)


def test_without_a_name_server_it_says_so():
    said = CliRunner().invoke(main, ["doctor", "-n", "127.0.0.1:9"], prog_name="sparrowmq")
    assert said.exit_code == 1 and "name server 127.0.0.1:9 does not answer" in said.output
