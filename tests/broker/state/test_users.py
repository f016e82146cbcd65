"""Users and policies as state: in the log, in their file, at a slave."""

import stat

from sparrowmq.broker.access_control import Users
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.broker_state import BrokerState
from sparrowmq.broker.journal import JournalRules
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.requests.user_headers import Policy, PolicyRule, UserEntry
from sparrowmq.store.message_store import MessageStore

ALICE = UserEntry("alice", "secret of alice", "Normal", "enable")
BOB = UserEntry("bob", "secret of bob", "Super", "enable")
POLICIES = [Policy("Custom", [PolicyRule("Topic:orders", ["Pub"], None, "Allow")])]


def settings_at(path):
    return BrokerSettings(name="broker-a", store_path=path, commit_log_file_bytes=1 << 20, index=False)


async def led(settings, change):
    """Lead a broker's state over its store, make changes, and end without saving a file."""
    with MessageStore.open(settings.store(1)) as store:
        state = await BrokerState.of_master(store, settings, SystemClock(), True, Turn(), JournalRules())
        result = change(state)
        if hasattr(result, "__await__"):
            await result
        store.publish()


def loaded(settings):
    with MessageStore.open(settings.store(1)) as store:
        return BrokerState.load(store, settings, SystemClock(), trusts_files=True).users


async def test_each_change_is_in_the_log_at_once(tmp_path):
    settings = settings_at(tmp_path)

    def change(state):
        state.users.put(ALICE)
        state.users.put(BOB)
        state.users.set_policies("alice", POLICIES)
        state.users.set_policies("bob", POLICIES)
        state.users.delete("bob")

    await led(settings, change)
    assert not (tmp_path / "config" / "users.json").exists()
    users = loaded(settings)
    assert users.table == {"alice": ALICE} and users.policies == {"alice": POLICIES}


async def test_the_log_has_the_version_of_a_change_and_only_a_broker_with_users_makes_their_file(tmp_path):
    settings = settings_at(tmp_path)
    await led(settings, lambda state: state.topics.ensure_own("first"))
    assert not loaded(settings).file.dirty
    versions = []

    def change(state):
        state.users.put(ALICE)
        state.users.delete("alice")
        versions.append(state.users.version)

    await led(settings, change)
    users = loaded(settings)
    assert [users.version] == versions and users.file.dirty


async def test_a_snapshot_has_the_users(tmp_path):
    settings = settings_at(tmp_path)
    await led(settings, lambda state: (state.users.put(ALICE), state.users.set_policies("alice", POLICIES)))
    await led(settings, lambda state: state.journal.write_snapshot())
    users = loaded(settings)
    assert users.table == {"alice": ALICE} and users.policies == {"alice": POLICIES}


async def test_a_follower_takes_users_and_says_so(tmp_path):
    settings = settings_at(tmp_path)
    await led(settings, lambda state: state.topics.ensure_own("first"))
    with MessageStore.open(settings.store(1)) as store:
        slave = BrokerState.of_slave(store, settings, SystemClock())
        master = await BrokerState.of_master(store, settings, SystemClock(), True, Turn(), JournalRules())
        assert slave.users.principals(False) == {}
        master.users.put(ALICE)
        master.users.set_policies("alice", POLICIES)
        store.publish()
        assert slave.follower is not None
        slave.follower.catch_up()
        assert set(slave.users.principals(False)) == {"alice"} and slave.users.table == {"alice": ALICE}
        assert slave.users.policies == {"alice": POLICIES}
        master.users.delete("alice")
        store.publish()
        assert slave.follower is not None
        slave.follower.catch_up()
        assert not slave.users.principals(False) and slave.users.table == {} and slave.users.policies == {}


async def test_only_the_owner_can_read_the_file(tmp_path):
    async def change(state):
        state.users.put(ALICE)
        await state.users.file.save()
        state.users.put(BOB)
        await state.users.file.save()

    await led(settings_at(tmp_path), change)
    for name in ("users.json", "users.json.bak"):
        assert stat.S_IMODE((tmp_path / "config" / name).stat().st_mode) == 0o600


async def test_a_broker_without_users_writes_no_file(tmp_path):
    settings = settings_at(tmp_path)
    await led(settings, lambda state: state.topics.ensure_own("first"))
    assert not loaded(settings).file.dirty


def test_policies_that_are_empty_are_gone(tmp_path):
    users = Users(tmp_path / "users.json", SystemClock())
    users.put(ALICE)
    users.set_policies("alice", POLICIES)
    found = users.of_subject("alice")
    assert found is not None and found.subject == "User:alice"
    users.set_policies("alice", [])
    assert users.of_subject("alice") is None and users.policies == {}
    assert users.version.counter == 3 and not users.delete("carol")
