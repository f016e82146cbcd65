"""The id of a transaction, which its client gives back when it ends the transaction.

    base64, URL-safe:   v1 BROKER-NAME STATE-OFFSET LOG-OFFSET UNIQUE-ID      with one blank between; names have none

It says where the half message is. So any port can end the transaction, also after a restart of the one that began it.
Unlike Java, whose proxy keeps the place in its memory, and gives the unique id.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, NamedTuple

from sparrowmq.core.digits import whole_number
from sparrowmq.grpc.statuses import Status, refused

_VERSION: Final = "v1"
_FIELDS: Final = 5
_DIGITS: Final = 19


class TransactionId(NamedTuple):
    """The parts of an id.

    Attributes:
        state_offset: the queue offset of the half message.
        log_offset: its place in the broker's log.
        unique_id: that of the message.
    """

    broker_name: str
    state_offset: int
    log_offset: int
    unique_id: str

    def __str__(self) -> str:
        words = (_VERSION, self.broker_name, str(self.state_offset), str(self.log_offset), self.unique_id)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> TransactionId:
        """Parse an id. Raises: RemoteError, the text is none."""
        try:
            words = base64.b64decode(text.encode("ascii"), b"-_", validate=True).decode().split(" ")
        except (binascii.Error, UnicodeError):
            words = []
        if len(words) != _FIELDS or words[0] != _VERSION or not all(words):
            raise _invalid()
        _, broker_name, state_offset, log_offset, unique_id = words
        return cls(broker_name, _number(state_offset), _number(log_offset), unique_id)


def _number(word: str) -> int:
    number = whole_number(word, _DIGITS)
    if number is None:
        raise _invalid()
    return number


def _invalid() -> Exception:
    return refused(Status.INVALID_TRANSACTION_ID, "the transaction id is invalid; give the one that the send returned")
