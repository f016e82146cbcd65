import re


def test_settings_are_shown_and_changed(admin):
    assert admin.ok("updateBrokerConfig -b {broker} -k maxMessageSize -v 4000000") == (
        f"update broker config success, {admin.broker}\n"
    )
    shown = admin.ok("getBrokerConfig -b {broker}")
    assert shown.startswith(f"============{admin.broker}============\n")
    assert f"{'maxMessageSize':<50}=  4000000\n" in shown and shown.endswith("\n\n")
    assert f"============Master: {admin.broker}============\n" in admin.ok("getBrokerConfig -c DefaultCluster")
    refused = admin("updateBrokerConfig -c DefaultCluster -k nothing -v x")
    assert refused.code == 1 and "MQBrokerException" in refused.err
    assert admin.ok("updateBrokerConfig -k a -v b").startswith("usage: mqadmin updateBrokerConfig")


def test_figures_are_shown_by_name(admin):
    rows = admin.ok("brokerStatus -b {broker}").splitlines()
    assert rows == sorted(rows) and f"{'brokerVersionDesc':<32}: V4_9_8" in rows
    of_cluster = admin.ok("brokerStatus -c DefaultCluster").splitlines()
    assert len(of_cluster) == len(rows) and all(row.startswith(admin.broker) for row in of_cluster)


def test_replication_of_a_master_without_slaves_is_shown(admin):
    for where in ("-b {broker}", "-c DefaultCluster"):
        first, *rows = admin.ok(f"haStatus {where}").splitlines()
        assert first == "" and rows[0] == f"#MasterAddr\t{admin.broker}"
        assert rows[2:4] == ["#SlaveNum\t0", "#InSyncSlaveNum\t0"]
        assert rows[4].split() == [
            "#SlaveAddr",
            "#SlaveAckOffset",
            "#Diff",
            "#TransferSpeed(KB/s)",
            "#Status",
            "#TransferFromWhere",
        ]


def test_the_progress_of_all_groups_is_shown(admin, topic):
    admin.send(topic, b"x", b"y", b"z")
    rows = admin.ok("brokerConsumeStats -b {broker}").splitlines()
    assert rows[0].split()[:2] == ["#Topic", "#Group"] and rows[-1].startswith("Diff Total: ")


def test_entries_of_a_queue_are_shown(admin, topic):
    admin.send(topic, b"x", b"y", b"z", tag="Aa")
    rows = admin.ok(f"queryCq -t {topic} -q 0 -i 0 -g nobody").splitlines()
    assert rows[:2] == ["Filter data: ", f"nobody@{topic} is not online!"]
    assert re.fullmatch(
        r"ConsumeQueueData{physicOffset=\d+, physicSize=\d+, tagsCode=2112, extendDataJson='null', bitMap='null', "
        r"eval=false, msg='null'}",
        rows[rows.index("idx: 0") + 1],
    )
    absent = admin(f"queryCq -t {topic} -q 9 -i 0")
    assert absent.err.startswith("org.apache.rocketmq.client.exception.MQClientException: CODE: 1  DESC: 9@")


def test_cleaning_is_begun_at_a_broker_a_cluster_or_all(admin):
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        for where in ("-b {broker}", "-c DefaultCluster", ""):
            assert admin.ok(f"{command} {where}") == "success"
        assert (admin(f"{command} -c Nowhere").out, admin(f"{command} -c Nowhere").code) == ("false", 1)


def test_producers_are_shown(admin, topic):
    assert "producer group (" in admin.ok("producer -b {broker}") or admin.ok("producer -b {broker}") == ""
