"""Whether a server measures how long its requests take: while its metrics are read, or slow requests are told."""

from __future__ import annotations

from sparrowmq.logs import LogSettings
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.turn import Turn
from sparrowmq.remoting.latencies import Latencies
from sparrowmq.remoting.request_dispatch import Dispatcher


class Measuring:
    """Switches it on and off, as settings say.

    Args:
        always: also while no slow request is to be told, since somebody reads the metrics.
        turn: of the sessions, if they share one.
    Attributes:
        latencies: what was measured.
    """

    def __init__(
        self, settings: LogSettings, clock: Clock, *, always: bool, turn: Turn | None = None
    ) -> None:
        self.latencies = Latencies(clock.monotonic)
        self._settings = settings
        self._always = always
        self._turn = turn
        self._dispatcher: Dispatcher | None = None

    def begin(self, dispatcher: Dispatcher) -> None:
        """Measure what this one handles."""
        self._dispatcher = dispatcher
        self.use(self._settings)

    def use(self, settings: LogSettings) -> None:
        """Do as the settings say, from the next request on."""
        self._settings = settings
        self.latencies.use(settings.slow_request_ms / 1000)
        is_on = self._always or settings.slow_request_ms > 0
        if self._dispatcher is not None:
            self._dispatcher.latencies = self.latencies if is_on else None
        if self._turn is not None:
            self._turn.now = self.latencies.now if is_on else None
