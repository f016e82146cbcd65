import logging
from pathlib import Path

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.core import logs
from sparrowmq.remoting.diagnosis import diagnosis, hide_secrets, secrets_of


def test_all_secret_settings_are_known_and_hidden() -> None:
    settings = BrokerSettings(ha_secret="abcdef", secret_key="abcd", key_password="xyz1")
    assert secrets_of(settings) == {"abcdef", "abcd", "xyz1"}
    assert hide_secrets(secrets_of(settings), "abcdef abcd xyz1 abc") == "(hidden) (hidden) (hidden) abc"


async def test_a_diagnosis_has_the_end_of_the_log_without_secrets(tmp_path: Path, caplog: object) -> None:
    root = logging.getLogger()
    before, file = root.handlers[:], tmp_path / "server.log"
    root.handlers.clear()
    try:
        logs.begin(str(file), logs.Form.TEXT, None, 1)
        logging.getLogger("sparrowmq.test").warning("a line with abcdef in it")
        found = await diagnosis(BrokerSettings(ha_secret="abcdef"))
        short = await diagnosis(BrokerSettings(), log_bytes=6)
    finally:
        for each in root.handlers:
            each.close()
        root.handlers[:] = before
        logs._tail = None
    assert "a line with (hidden) in it" in found["log"] and short["log"] == "in it\n"
    assert "python: 3" in found["process"] and "task " in found["stacks"]
