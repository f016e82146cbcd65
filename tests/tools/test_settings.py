from sparrowmq.broker.config import BrokerSettings
from sparrowmq.config import keyed
from tools.settings import settings_page


def test_every_setting_has_a_row_and_those_that_change_a_star():
    page = settings_page("note")
    for each in keyed(BrokerSettings):
        star = " *" if each.metadata["live"] else ""
        assert f"| `{each.metadata['keys'][0]}`{star} |" in page


def test_the_page_is_the_same_on_every_machine(monkeypatch):
    assert "| `brokerName` | the machine's name |" in settings_page("note")
    assert "| `storePathRootDir` | `~/store` |" in settings_page("note")
