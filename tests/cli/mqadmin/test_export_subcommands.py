import json
from pathlib import Path


def exported(said):
    return json.loads(Path(said.split()[1]).read_text())


def test_topics_and_groups_are_exported(admin, topic, tmp_path):
    admin.ok(f"updateSubGroup -b {{broker}} -g exported-{topic}")
    said = admin.ok(f"exportMetadata -c DefaultCluster -f {tmp_path}")
    assert said == f"export {tmp_path}/metadata.json success\n"
    found = exported(said)
    assert found["topicConfigTable"][topic]["readQueueNums"] == 2 and "TBW102" not in found["topicConfigTable"]
    assert f"exported-{topic}" in found["subscriptionGroupTable"] and found["exportTime"] > 0
    assert not any(name.startswith("%") for name in found["topicConfigTable"])
    for option, file in (("-t", "topic.json"), ("-g", "subscriptionGroup.json")):
        for place in ("-c DefaultCluster", "-b {broker}"):
            said = admin.ok(f"exportMetadata {place} -f {tmp_path} {option}").strip()
            assert said == f"export {tmp_path}/{file} success" and len(exported(said)) == (2 if "-c" in place else 1)
    assert admin.ok("exportMetadata").startswith("usage: mqadmin exportMetadata")


def test_settings_and_figures_are_exported(admin, tmp_path):
    found = exported(admin.ok(f"exportConfigs -c DefaultCluster -f {tmp_path}"))
    assert found["clusterScale"] == {"namesrvSize": 1, "slaveBrokerSize": 0, "masterBrokerSize": 1}
    assert found["brokerConfigs"]["broker-0"]["flushDiskType"] == "ASYNC_FLUSH"
    found = exported(admin.ok(f"exportMetrics -c DefaultCluster -f {tmp_path}"))
    assert set(found["evaluateReport"]["broker-0"]) == {"runtimeVersion", "runtimeQuota", "runtimeEnv"}
    assert found["totalData"]["totalTps"]["totalNormalInTps"] >= 0
    assert "there is no cluster Nowhere" in admin(f"exportMetrics -c Nowhere -f {tmp_path}").err


def test_a_folder_that_cannot_be_written_is_told(admin):
    said = admin("exportConfigs -c DefaultCluster -f /proc/nothing")
    assert said.code == 1 and "FileNotFoundException: /proc/nothing/configs.json" in said.err
