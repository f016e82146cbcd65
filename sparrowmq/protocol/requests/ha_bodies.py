"""The state of replication: the answer to GET_BROKER_HA_STATUS (907). Source: HARuntimeInfo, Java 5.4.0."""

# ruff: noqa: RUF012 - msgspec gives each body its own empty list

from __future__ import annotations

from msgspec import field

from sparrowmq.protocol.wire.body import Body


class SlaveState(Body):
    """A slave, as its master sees it. (Java: HAConnectionRuntimeInfo)

    Attributes:
        diff: bytes that the slave lacks.
        in_sync: whether it lacks so little that the master waits for it.
        transfer_from_where: the offset from which the master sends next.
    """

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


class FollowingState(Body):
    """A slave, as it sees itself. Times are in ms since 1970. (Java: HAClientRuntimeInfo)"""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


class HaStatus(Body):
    """The state of a master with its slaves, or of a slave."""

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[SlaveState] = []
    ha_client_runtime_info: FollowingState = field(default_factory=FollowingState)
