"""docs/operate/operating.md: every command in a box, in order, with the extra `server` alone."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.settings.settings import build, load
from tests.place import SMALL, Place

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operate" / "operating.md").read_text()
PIECES = re.findall(r"```(sh|start|properties)\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_command_works_in_its_order(tmp_path):
    with ExitStack() as stack:
        place = Place(tmp_path, stack, "server")
        said: dict[str, str] = {}
        for kind, piece in PIECES:
            if kind == "properties":
                (tmp_path / "broker.conf").write_text(place.text(piece) + SMALL)
            elif kind == "start":
                place.start(piece)
            else:
                said[piece] = place.shell(piece)
    restored = said["sparrowmq message find orders --since 1h\n"]
    assert "hello" in restored, "what was sent before the store was lost is there again"
    assert load(tmp_path / "broker.conf")["fileReservedTime"] == "48", "what `set` changed is kept"


def test_every_setting_that_is_named_is_one():
    keys = {key for each in re.findall(r"`([a-z]+[A-Z]\w+)(?:=[^`]*)?`", PAGE) for key in [each]}
    known = BrokerSettings().as_properties().keys() | NamesrvSettings().as_properties().keys() | {"rocketmqHome"}
    optional = {"brokerIP2", "bindAddress", "fastListenPort", "haListenPort", "haSecret", "grpcServerPort"}
    assert sorted(keys - known - optional) == []
    [conf] = [piece for kind, piece in PIECES if kind == "properties"]
    given = dict(line.split("=", 1) for line in conf.splitlines())
    _, report = build(BrokerSettings, given, "operating.md")
    assert not report.unknown and not report.without_effect
