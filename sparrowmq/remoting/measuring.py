"""The switch for measuring request durations: on while metrics are read, or slow requests are logged."""

from __future__ import annotations

from sparrowmq.core.logs import LogSettings
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.remoting.latencies import Latencies
from sparrowmq.remoting.request_dispatch import Dispatcher


class Measuring:
    """Switches measuring on and off by the settings.

    Args:
        always: measure even if slow requests are not logged, because metrics are read.
        turn: of the sessions, if they share one.
    Attributes:
        latencies: the measured latencies.
    """

    def __init__(self, settings: LogSettings, clock: Clock, *, always: bool, turn: Turn | None = None) -> None:
        self.latencies = Latencies(clock.monotonic)
        self._settings = settings
        self._always = always
        self._turn = turn
        self._dispatcher: Dispatcher | None = None

    def begin(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.use(self._settings)

    def use(self, settings: LogSettings) -> None:
        """Apply settings from the next request on."""
        self._settings = settings
        self.latencies.use(settings.slow_request_ms / 1000)
        is_on = self._always or settings.slow_request_ms > 0
        if self._dispatcher is not None:
            self._dispatcher.latencies = self.latencies if is_on else None
        if self._turn is not None:
            self._turn.now = self.latencies.now if is_on else None
