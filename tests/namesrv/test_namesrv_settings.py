import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.remoting.tls.tls_settings import TlsMode
from sparrowmq.settings.settings import build, keyed_fields

# namesrv.conf as Apache's tutorials have it.
TUTORIAL = {
    "rocketmqHome": "/opt/rocketmq",
    "kvConfigPath": "/data/kvConfig.json",
    "listenPort": "9877",
    "serverWorkerThreads": "8",
    "serverSelectorThreads": "3",
    "orderMessageEnable": "true",
}


def test_a_tutorials_file_is_read_without_surprise():
    settings, report = build(NamesrvSettings, TUTORIAL, "namesrv.conf")
    assert (settings.port, str(settings.kv_path), settings.order_messages) == (
        9877,
        "/data/kvConfig.json",
        True,
    )
    assert not report.unknown and len(report.without_effect) == 2
    assert settings.as_properties().items() >= TUTORIAL.items()


def test_it_listens_for_this_machine_alone_unless_told():
    assert NamesrvSettings().bind_address == "127.0.0.1" and not NamesrvSettings().insecure


def test_no_key_is_both_honoured_and_without_effect():
    honoured = {key for each in keyed_fields(NamesrvSettings) for key in each.metadata["keys"]}
    assert not honoured & NamesrvSettings.ACCEPTED.keys()


def test_settings_of_encryption_that_there_are_not_are_refused():
    with pytest.raises(ConfigError, match=r"tls\.server\.certpath = 'c' is not .* no setting of TLS is called so"):
        build(NamesrvSettings, {"tls.server.certpath": "c"}, "namesrv.conf")
    settings, _ = build(NamesrvSettings, {"tls.server.mode": "enforcing"}, "namesrv.conf")
    assert settings.tls_mode is TlsMode.ENFORCING and settings.talks_tls
