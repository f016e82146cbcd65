"""The state of replication: the bytes that Apache's broker 5.4.0 answers."""

from sparrowmq.protocol.requests.bodies import FollowingState, HaStatus, SlaveState

MASTER = (
    b'{"haClientRuntimeInfo":{"activated":false,"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,'
    b'"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[{"addr":"127.0.0.1:1","diff":5,"inSync":true,'
    b'"slaveAckOffset":7,"transferFromWhere":12,"transferredByteInSecond":3}],"inSyncSlaveNums":1,"master":true,'
    b'"masterCommitLogMaxOffset":12}'
)


def test_answer_of_apache_is_read_and_ours_has_its_names() -> None:
    status = HaStatus(True, 12, 1, [SlaveState("127.0.0.1:1", 7, 5, True, 3, 12)])
    assert HaStatus.decode(MASTER) == status == HaStatus.decode(status.encode())
    assert b'"slaveAckOffset":7' in status.encode()
    following = HaStatus(ha_client_runtime_info=FollowingState("127.0.0.1:2", 1, 2, 3, 4, 5))
    assert HaStatus.decode(following.encode()) == following
