import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.errors import ConfigError
from sparrowmq.settings.settings import build, keyed_fields
from sparrowmq.store.store_settings import Flush

# conf/2m-noslave/broker-a.properties and a common tutorial, together.
TUTORIAL = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "deleteWhen": "04",
    "fileReservedTime": "48",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876",
    "brokerIP1": "10.0.0.3",
    "listenPort": "10921",
    "storePathRootDir": "/data/rocketmq",
    "storePathCommitLog": "/log/rocketmq",
    "mapedFileSizeCommitLog": "134217728",
    "mapedFileSizeConsumeQueue": "3000000",
    "diskMaxUsedSpaceRatio": "88",
    "maxMessageSize": "65536",
    "sendMessageThreadPoolNums": "16",
    "destroyMapedFileIntervalForcibly": "120000",
}


def parse(**given):
    return build(BrokerSettings, given, "broker.conf")[0]


def test_a_tutorials_file_is_read_without_surprise():
    settings, report = build(BrokerSettings, TUTORIAL, "broker.conf")
    assert not report.unknown
    assert sorted(report.without_effect) == ["destroyMapedFileIntervalForcibly", "sendMessageThreadPoolNums"]
    assert settings.flush is Flush.ASYNC and settings.retention_h == 48
    assert settings.namesrv == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert (settings.address(10921), settings.ha_address(10922)) == ("10.0.0.3:10921", "10.0.0.3:10922")


def test_tools_read_the_settings_back_under_the_right_spelling():
    properties = build(BrokerSettings, TUTORIAL, "broker.conf")[0].as_properties()
    spelled = {key.replace("mapedFileSize", "mappedFileSize"): value for key, value in TUTORIAL.items()}
    assert properties.items() >= spelled.items()
    assert properties["messageDelayLevel"].startswith("1s 5s 10s 30s 1m") and properties["brokerPermission"] == "6"


def test_the_store_gets_its_part():
    store = build(BrokerSettings, TUTORIAL, "broker.conf")[0].store(10921)
    assert (str(store.path), str(store.commit_log_path)) == ("/data/rocketmq", "/log/rocketmq")
    assert (store.commit_log_file_size, store.consume_queue_file_entries) == (128 << 20, 150_000)
    assert store.store_host == bytes((10, 0, 0, 3)) + (10921).to_bytes(4, "big")
    assert (store.flush, store.retention_hours, store.disk_clean_ratio) == (Flush.ASYNC, 48, 0.88)
    assert store.disk_clean_ratio <= store.disk_force_ratio <= store.disk_full_ratio


def test_without_a_file_an_answer_waits_for_the_disk_and_nobody_else_can_connect():
    settings = BrokerSettings()
    assert settings.flush is Flush.SYNC and settings.bind_address == "127.0.0.1" and not settings.insecure
    assert settings.config_path == settings.store_path / "config"


@pytest.mark.parametrize(
    ("given", "bind"),
    [
        ({}, "127.0.0.1"),
        ({"brokerIP1": "127.0.0.2"}, "127.0.0.2"),
        ({"brokerIP1": "10.0.0.3"}, "0.0.0.0"),
        ({"brokerIP1": "10.0.0.3", "bindAddress": "127.0.0.1"}, "127.0.0.1"),
    ],
)
def test_it_listens_where_it_tells_clients_to_connect(given, bind):
    assert parse(**given).bind_address == bind


def test_an_address_of_version_six_is_written_with_brackets():
    settings = parse(brokerIP1="::1")
    assert settings.address(1) == "[::1]:1" and len(settings.store(1).store_host) == 20


def test_a_host_name_becomes_its_address_in_records():
    assert parse(brokerIP1="localhost").store(1).store_host[:1] in (b"\x7f", b"\x00")
    with pytest.raises(ConfigError, match=r"brokerIP1 = 'no\.such\.host\.invalid' has no address"):
        parse(brokerIP1="no.such.host.invalid").store(1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"enableDLegerCommitLog": "true"}, "enableDLegerCommitLog = 'true' is not supported yet"),
        ({"tlsCertPath": "/etc/cert.pem"}, "no setting of TLS is called so"),
        ({"brokerRole": "MASTER"}, "must be ASYNC_MASTER or SYNC_MASTER or SLAVE"),
        ({"brokerId": "-1"}, "must be a whole number from 0 to"),
        ({"haMasterAddress": "here"}, "must be host:port"),
        ({"haMasterAddress": "a:1;b:2"}, "must be host:port"),
        ({"slaveAck": "soon"}, "must be written or flushed"),
        ({"brokerName": "a b"}, "must be letters, digits"),
        ({"deleteWhen": "25"}, "must be hours of the day"),
        ({"messageDelayLevel": "1s soon"}, "must be delays with blanks between"),
        ({"mappedFileSizeCommitLog": "1000001"}, "a multiple of 512"),
        ({"mappedFileSizeCommitLog": "4g"}, "must be a size from 64k to 2147483136, a multiple of 512"),
        ({"diskMaxUsedSpaceRatio": "0.75"}, "must be a whole number from 10 to 95"),
        ({"flushDiskType": "NEVER_FLUSH"}, "must be SYNC_FLUSH or ASYNC_FLUSH"),
    ],
)
def test_what_cannot_be_done_is_refused(given, words):
    with pytest.raises(ConfigError) as caught:
        parse(**given)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "shown"),
    [
        ("diskMaxUsedSpaceRatio", "99", "95"),
        ("diskMaxUsedSpaceRatio", "0", "10"),
        ("registerNameServerPeriod", "120000", "60000"),
        ("registerNameServerPeriod", "-1", "10000"),
        ("mappedFileSizeConsumeQueue", "1000001", "1000020"),
        ("mapedFileSizeConsumeQueue", "1000001", "1000020"),
        ("maxMessageSize", "67108864", "16777216"),
        ("accessMessageInMemoryMaxRatio", "101", "100"),
        ("slaveTimeout", "0", "1"),
    ],
)
def test_a_number_of_apaches_broker_out_of_range_counts_as_the_nearest_and_warns(
    key: str, text: str, shown: str
) -> None:
    settings, report = build(BrokerSettings, {key: text}, "broker.conf")
    assert settings.as_properties()[key.replace("maped", "mapped")] == shown
    [sentence] = report.sentences()
    assert sentence.startswith(f"{key} = {text!r} counts as {shown}; it must be a ")


def test_every_number_that_is_clamped_is_a_setting() -> None:
    known = {key for each in keyed_fields(BrokerSettings) for key in each.metadata["keys"]}
    assert known >= set(BrokerSettings.CLAMPED)


@pytest.mark.parametrize("text", ["0", "-1"])
def test_a_port_for_slaves_below_one_is_the_default_as_in_java(text: str) -> None:
    settings, _ = build(BrokerSettings, {"haListenPort": text}, "broker.conf")
    assert settings.ha_port is None


def test_access_control_that_is_off_is_no_reason_to_refuse():
    assert parse(aclEnable="false").as_properties()["aclEnable"] == "false"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"brokerIP1": "10.0.0.7"}, {"brokerIP2": "10.0.0.7", "useTLS": "false"}),
        ({"brokerIP1": "10.0.0.7", "brokerIP2": "10.1.0.7"}, {"brokerIP2": "10.1.0.7"}),
        ({"storePathRootDir": "/data/mq"}, {"storePathCommitLog": "/data/mq/commitlog"}),
        ({"storePathCommitLog": "/log"}, {"storePathCommitLog": "/log"}),
        ({"maxTransferBytesOnMessageInMemory": "2048"}, {"maxTransferBytesOnMessageInDisk": "2048"}),
        (
            {"regionId": "mine", "forceRegister": "true"},
            {"regionId": "DefaultRegion", "forceRegister": "false"},
        ),
        ({"tls.server.mode": "enforcing"}, {"useTLS": "true"}),
        ({}, {"diskSpaceWarningLevelRatio": "90", "diskSpaceCleanForciblyRatio": "85"}),
        (
            {"diskMaxUsedSpaceRatio": "93"},
            {"diskSpaceWarningLevelRatio": "93", "diskSpaceCleanForciblyRatio": "93"},
        ),
        ({"sendMessageThreadPoolNums": "16"}, {"sendMessageThreadPoolNums": "16"}),
    ],
    ids=str,
)
def test_tools_are_shown_what_is_in_effect(given: dict[str, str], shown: dict[str, str]) -> None:
    settings, _ = build(BrokerSettings, given, "test")
    assert settings.as_shown().items() >= shown.items()
