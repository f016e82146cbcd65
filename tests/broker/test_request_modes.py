"""How groups consume: kept in Apache's file."""

import json

from sparrowmq.broker.request_modes import RequestModes
from sparrowmq.protocol.requests.assignment_bodies import POP, PULL, RequestMode, RequestModeTable


async def test_a_mode_is_there_after_a_restart(tmp_path):
    modes = RequestModes(tmp_path)
    assert modes.get("T", "g") == RequestMode("T", "g", PULL, 0)
    before = modes.content()
    modes.put(RequestMode("T", "g", POP, 3))
    modes.put(RequestMode("T", "h", POP))
    assert before == RequestModeTable()
    await modes.file.save()
    saved = json.loads((tmp_path / "messageRequestMode.json").read_bytes())
    assert saved["messageRequestModeMap"]["T"]["g"] == {
        "consumerGroup": "g",
        "mode": "POP",
        "popShareQueueNum": 3,
        "topic": "T",
    }
    again = RequestModes(tmp_path)
    assert (again.get("T", "g").pop_share_queue_num, again.get("T", "h").mode) == (3, POP)


async def test_a_slave_follows_and_saves_only_changes(tmp_path):
    modes = RequestModes(tmp_path)
    modes.follow(RequestModeTable())
    assert not modes.file.dirty
    modes.follow(RequestModeTable({"T": {"g": RequestMode("T", "g", POP)}}))
    assert modes.file.dirty
    assert modes.get("T", "g").mode == POP
