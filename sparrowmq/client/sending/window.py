"""The messages of one producer that are not answered: how many there are, and how many bytes they have.

gathered (this turn) -> waiting (the window is full) -> in flight -> answered
"""

from __future__ import annotations


class Window:
    """The counts of one producer's messages.

    Args:
        size, size_bytes: the messages, and the bytes of their bodies, that may be in flight.
        waiting_limit_bytes: the memory of messages that may wait.
    Attributes:
        in_flight, in_flight_bytes: messages in flight, and the bytes of their bodies.
        waiting, waiting_bytes: messages that wait for the window, and the memory that they take.
        is_shut: the client is being left; nothing more is taken.
        gathered, gathered_bytes: the same of the messages that wait for the end of this turn.
    """

    __slots__ = (
        "gathered",
        "gathered_bytes",
        "in_flight",
        "in_flight_bytes",
        "is_shut",
        "size",
        "size_bytes",
        "waiting",
        "waiting_bytes",
        "waiting_limit_bytes",
    )

    def __init__(self, size: int, size_bytes: int, waiting_limit_bytes: int) -> None:
        self.size = size
        self.size_bytes = size_bytes
        self.waiting_limit_bytes = waiting_limit_bytes
        self.is_shut = False
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.waiting = 0
        self.waiting_bytes = 0
        self.gathered = 0
        self.gathered_bytes = 0

    @property
    def gathers(self) -> bool:
        """Whether a message may wait for the end of the turn: others are in flight, or it could leave at once."""
        return self.in_flight > 0 and not self.is_shut

    @property
    def is_open(self) -> bool:
        """Whether a message may enter now."""
        return self.in_flight < self.size and self.in_flight_bytes < self.size_bytes

    @property
    def has_room(self) -> bool:
        """Whether a message would be sent by the end of this turn."""
        return (
            self.waiting == 0 and self.in_flight + self.gathered < self.size and self.in_flight_bytes < self.size_bytes
        )

    @property
    def unanswered(self) -> int:
        """The messages that are gathered, wait, or are in flight."""
        return self.gathered + self.waiting + self.in_flight

    def takes(self, cost_bytes: int) -> bool:
        """Return whether a message that takes so much memory may wait."""
        return self.waiting_bytes + self.gathered_bytes + cost_bytes <= self.waiting_limit_bytes

    def wait(self, count: int, cost_bytes: int) -> None:
        """Messages wait; negative numbers are of those that have waited."""
        self.waiting += count
        self.waiting_bytes += cost_bytes

    def enter(self, count: int, body_bytes: int) -> None:
        """Messages are in flight; negative numbers are of those that leave."""
        self.in_flight += count
        self.in_flight_bytes += body_bytes
