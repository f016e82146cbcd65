import re

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.settings.settings import keyed_fields
from tools.prose import problems
from tools.settings import BOTH, BROKER, NAMESRV, descriptions, grouped, settings_page


@pytest.mark.parametrize(
    ("settings", "groups"), [(BrokerSettings, (*BROKER, *BOTH)), (NamesrvSettings, (*NAMESRV, *BOTH))]
)
def test_every_setting_is_in_a_group(settings, groups):
    found = [each for _, members in grouped(settings, groups) for each in members]
    assert found == keyed_fields(settings)


def test_every_setting_has_a_row_and_those_that_change_while_the_server_runs_a_star():
    page = settings_page()
    for each in (*keyed_fields(BrokerSettings), *keyed_fields(NamesrvSettings)):
        star = " *" if each.metadata["live"] else ""
        assert f"| `{each.metadata['keys'][0]}`{star} |" in page


def test_the_settings_that_most_people_need_come_first():
    rows = re.findall(r"^\| `([\w.]+)`", settings_page(), re.MULTILINE)
    assert rows[:3] == ["brokerName", "brokerClusterName", "namesrvAddr"]
    assert len(grouped(BrokerSettings, BROKER)[0][1]) == 10


def test_each_description_is_one_or_two_short_sentences():
    described = descriptions(BrokerSettings) | descriptions(NamesrvSettings)
    for each in (*keyed_fields(BrokerSettings), *keyed_fields(NamesrvSettings)):
        words = described[each.name]
        assert re.match(r"[A-Z]|true: ", words) and words.endswith("."), words
        assert len(words.split()) <= 20, words


def test_the_page_reads_as_other_pages_do():
    assert list(problems(settings_page())) == []


def test_the_page_is_the_same_on_every_machine(monkeypatch):
    assert "| `brokerName` | the machine's name |" in settings_page()
    assert "| `storePathRootDir` | `~/store` |" in settings_page()
