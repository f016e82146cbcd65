"""The bodies with which a broker shares queues among the members of a group, and lets groups pop.

    QUERY_ASSIGNMENT (400)               AssignmentQuery ── Assignments
    SET_MESSAGE_REQUEST_MODE (401)       RequestMode
    GET_ALL_MESSAGE_REQUEST_MODE (402)   RequestModeTable, also messageRequestMode.json

Source: QueryAssignmentRequestBody, SetMessageRequestModeRequestBody, MessageRequestModeSerializeWrapper, Java 5.4.0.
"""

# ruff: noqa: RUF012 - msgspec gives each body its own empty list or dict

from __future__ import annotations

from typing import Final, TypeAlias

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.bodies import DataVersion, JournalMark
from sparrowmq.protocol.wire.body import Body

PULL: Final = "PULL"
POP: Final = "POP"
MODES: Final = (PULL, POP)


class AssignmentQuery(Body):
    """The question of one member: which queues of a topic are its own?"""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: str = "CLUSTERING"


class Assignment(Body):
    """A queue of the member, or with id -1 any queue of a broker; and whether the member pulls or pops it."""

    message_queue: MessageQueue
    mode: str = PULL


class Assignments(Body):
    """The answer; None if the broker cannot tell, so the member keeps what it has."""

    message_queue_assignments: list[Assignment] | None = None


class RequestMode(Body):
    """The way in which a group consumes a topic."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = PULL
    pop_share_queue_num: int = 0  # the number of other members whose queues each member pops too; 0 is all


Modes: TypeAlias = dict[str, dict[str, RequestMode]]  # by topic and group


class RequestModeTable(Body):
    """The modes that operators have set, by topic and group.

    Attributes:
        data_version, journal: ours; Apache's file and answer have none.
    """

    message_request_mode_map: Modes = {}
    data_version: DataVersion | None = None
    journal: JournalMark | None = None
