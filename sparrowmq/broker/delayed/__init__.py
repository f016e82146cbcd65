"""Messages that the broker delivers later: delay levels and timers."""
