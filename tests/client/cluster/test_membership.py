import pytest

from sparrowmq.client.cluster.membership import Membership
from sparrowmq.errors import ConfigError
from sparrowmq.loop.tasks import Background
from sparrowmq.protocol.requests.client_bodies import ConsumeOutcome, ConsumerBeat, ConsumerRunning, Heartbeat


class Silent:
    """A consumer that only has a name."""

    def __init__(self, group: str) -> None:
        self.full_group = group
        self._background = Background()

    def _heartbeat_entry(self) -> ConsumerBeat:
        return ConsumerBeat(group_name=self.full_group)

    def _on_members_changed(self) -> None: ...

    async def _reset_offsets(self, offsets) -> None: ...

    def _running_info(self) -> ConsumerRunning:
        return ConsumerRunning()

    async def _on_client_leaving(self) -> None: ...

    def _on_client_left(self) -> None: ...

    def _positions_in(self, topic):
        return {}

    async def _deliver_once(self, stored, broker_name) -> ConsumeOutcome:
        return ConsumeOutcome()


def test_a_heartbeat_names_all_groups():
    membership = Membership("me")
    assert membership.heartbeat() is None
    membership.add_producer("p")
    membership.add_consumer(Silent("c"))
    body = membership.heartbeat()
    assert body is not None
    beat = Heartbeat.decode(body)
    assert beat.client_id == "me"
    assert [each.group_name for each in beat.producer_data_set] == ["p"]
    assert [each.group_name for each in beat.consumer_data_set] == ["c"]


@pytest.mark.covers("S-PROD-02")
def test_a_group_has_one_producer_and_one_consumer_of_a_client():
    membership = Membership("me")
    membership.add_producer("g")
    membership.add_consumer(Silent("g"))
    with pytest.raises(ConfigError, match="use that one"):
        membership.add_producer("g")
    with pytest.raises(ConfigError, match="name all topics of the group in one call"):
        membership.add_consumer(Silent("g"))


def test_only_who_is_in_a_group_can_leave_it():
    membership = Membership("me")
    member = Silent("g")
    membership.add_consumer(member)
    membership.remove_consumer(Silent("g"))
    assert membership.consumers == {"g": member}
    membership.remove_consumer(member)
    assert not membership.consumers
