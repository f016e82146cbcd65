from sparrowmq.client.consuming.assignment import DemotedMasterQueues
from sparrowmq.errors import A_SLAVE, BrokerUnreachable, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from tests.client.cluster.test_broker_sessions import World

ONE, TWO = (MessageQueue("t", "broker-a", number) for number in range(2))
OF_SLAVE = RemoteError(ResponseCode.SLAVE_NOT_AVAILABLE, A_SLAVE)
AWAY = BrokerUnreachable("broker-a", "away")


async def test_a_queue_whose_master_was_found_to_be_a_slave_is_waited_for_until_nothing_fails(peer):
    world = World(peer)
    peer.has("t")
    await world.routes.of("t")
    moved = DemotedMasterQueues(world.network)
    assert moved.among({ONE: AWAY, TWO: OF_SLAVE}) == {TWO}
    assert moved.among({ONE: AWAY, TWO: AWAY}) == {TWO}
    assert moved.among({ONE: AWAY}) == set()
    world.pool.close()
