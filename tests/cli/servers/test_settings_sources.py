import logging

import pytest

from sparrowmq.cli.servers.settings_sources import merge, sources
from sparrowmq.errors import ConfigError
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings


def test_the_strongest_source_comes_last(tmp_path):
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=1\norderMessageEnable=true\nbindAddress=::1\n")
    given = sources(str(file), {"listenPort": "2", "bindAddress": "127.0.0.2"}, ["listenPort=3"], {"insecure": "true"})
    assert [source for source, _ in given] == [str(file), "the environment", "the command line"]
    settings = merge(NamesrvSettings, given)
    assert (settings.port, settings.bind_address, settings.order_messages) == (3, "127.0.0.2", True)
    assert settings.insecure


def test_a_wrong_value_is_told_with_its_source():
    with pytest.raises(ConfigError, match="the environment: listenPort = 'x' is wrong"):
        merge(NamesrvSettings, sources(None, {"listenPort": "x"}, [], {}))


def test_what_has_no_effect_is_logged_with_its_source(caplog):
    with caplog.at_level(logging.WARNING):
        merge(NamesrvSettings, sources(None, {}, ["serverSelectorThreads=3"], {}))
    assert caplog.messages[0].startswith("the command line: serverSelectorThreads has no effect here: ")


def test_a_value_may_contain_the_equals_sign():
    assert sources(None, {}, ["key=a=b"], {})[-1][1] == {"key": "a=b"}


@pytest.mark.parametrize("change", ["", "key", "=value", " =value"])
def test_a_change_without_key_or_value_is_told(change):
    with pytest.raises(ConfigError, match="is not key=value"):
        sources(None, {}, [change], {})
