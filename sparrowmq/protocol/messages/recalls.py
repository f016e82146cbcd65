"""Recalls of messages for a time, and the messages that they name.

    message    REAL_TOPIC orders, UNIQ_KEY AB01, TIMER_OWNER billing
    recall     REAL_TOPIC orders, TIMER_DEL_UNIQKEY orders+AB01, TIMER_OWNER billing

TIMER_OWNER is the account that sent a record while access control was on. A recall counts if it has the owner of the
message. That of an administrator, or of an address that needs no permissions, has no owner, and counts for every
message. Each account that may send to the topic may recall a message without an owner.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparrowmq.protocol.messages.property_names import Property


class Recalls:
    """Some recalls, by what they name."""

    def __init__(self) -> None:
        self._owners: dict[str, set[str | None]] = {}

    def add(self, recall: Mapping[str, str]) -> None:
        """Add a recall if it names a message of its own topic.

        A client that may write to one topic must not recall messages of another.
        """
        key = recall.get(Property.TIMER_DEL_UNIQKEY, "")
        if key.startswith(delete_key(recall.get(Property.REAL_TOPIC, ""), "")):
            self._owners.setdefault(key, set()).add(recall.get(Property.TIMER_OWNER))

    def include(self, topic: str, unique_id: str, owner: str | None) -> bool:
        """Whether a message was recalled."""
        owners = self._owners.get(delete_key(topic, unique_id)) if self._owners else None
        return owners is not None and (owner is None or None in owners or owner in owners)


def delete_key(topic: str, unique_id: str) -> str:
    """Return the value of TIMER_DEL_UNIQKEY for a message."""
    return f"{topic}+{unique_id}"
