import sys

import pytest

from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.console.loading import console_of
from sparrowmq.console.users import Accounts
from sparrowmq.errors import ConfigError


def test_without_nicegui_one_is_told_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "sparrowmq.console.console_server", raising=False)
    monkeypatch.setitem(sys.modules, "nicegui", None)
    monkeypatch.delitem(sys.modules, "sparrowmq.console.page_table", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'sparrowmq\[console\]'"):
        console_of(ConsoleSettings(Accounts({}), "127.0.0.1:9876"))
