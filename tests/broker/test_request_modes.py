"""How groups consume: kept in the journal, and in Apache's file."""

import json

import pytest

from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.groups import MODES_FILE, RequestModes
from sparrowmq.broker.journal import JournalRules
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.requests.client_bodies import POP, PULL, RequestMode, RequestModeTable
from sparrowmq.store.message_store import MessageStore
from tests.broker.state.test_users import led, settings_at

MODE = RequestMode("T", "g", POP, 3)


def modes_in(folder):
    return RequestModes(folder / MODES_FILE, SystemClock())


def loaded(settings):
    with MessageStore.open(settings.store(1)) as store:
        state = BrokerState.load(store, settings, SystemClock(), trusts_files=True)
        return state.modes, state.is_from_log


async def test_a_mode_is_there_after_a_restart(tmp_path):
    modes = modes_in(tmp_path)
    assert modes.get("T", "g") == RequestMode("T", "g", PULL, 0)
    before = modes.content()
    modes.put(MODE)
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
    again = modes_in(tmp_path)
    assert (again.get("T", "g").pop_share_queue_num, again.get("T", "h").mode) == (3, POP)
    assert again.version == modes.version and again.version.counter == 2


async def test_a_slave_saves_only_changes(tmp_path):
    modes = modes_in(tmp_path)
    modes.replace(None, {})
    assert not modes.file.dirty
    modes.replace(None, {"T": {"g": MODE}})
    assert modes.file.dirty
    assert modes.get("T", "g").mode == POP


async def test_a_mode_is_in_the_log_also_where_the_file_is_lost(tmp_path):
    settings = settings_at(tmp_path)
    await led(settings, lambda state: state.modes.put(MODE))
    (tmp_path / "config" / MODES_FILE).unlink(missing_ok=True)
    modes, is_from_log = loaded(settings)
    assert modes.table == {"T": {"g": MODE}} and is_from_log and modes.file.dirty


@pytest.mark.parametrize("of_apache", [False, True])
async def test_modes_of_a_file_from_before_they_were_in_the_log_count_and_come_into_the_log(tmp_path, of_apache):
    settings = settings_at(tmp_path)
    await led(settings, lambda state: state.topics.ensure_own("first"))
    old = modes_in(tmp_path / "config")
    old.put(MODE)
    old.version = None
    await old.file.save()
    if of_apache:
        path = tmp_path / "config" / MODES_FILE
        path.write_text(json.dumps(json.loads(path.read_bytes())))
    modes, is_from_log = loaded(settings)
    assert modes.table == {"T": {"g": MODE}} and not is_from_log
    await led(settings, lambda state: state.topics.ensure_own("second"))
    (tmp_path / "config" / MODES_FILE).unlink()
    modes, is_from_log = loaded(settings)
    assert modes.table == {"T": {"g": MODE}} and is_from_log


async def test_a_slave_has_a_new_mode_at_once_and_keeps_what_a_master_of_a_former_version_said(tmp_path):
    settings, clock = settings_at(tmp_path), SystemClock()
    await led(settings, lambda state: state.topics.ensure_own("first"))
    with MessageStore.open(settings.store(1)) as store:
        slave = BrokerState.of_slave(store, settings, clock)
        slave.modes.replace(None, {"T": {"h": MODE}})
        master = await BrokerState.of_master(store, settings, clock, True, Turn(), JournalRules())

        assert master.journal is not None

        def catch_up():
            assert slave.follower is not None
            store.publish()
            slave.follower.catch_up()

        master.journal.write_snapshot()
        catch_up()
        assert slave.modes.table == {"T": {"h": MODE}}
        master.modes.put(MODE)
        catch_up()
        assert slave.modes.table["T"]["g"] == MODE
        master.journal.write_snapshot()
        catch_up()
        assert slave.modes.table == {"T": {"g": MODE}} and slave.modes.version == master.modes.version
