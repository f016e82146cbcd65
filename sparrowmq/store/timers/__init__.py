"""Pending timers: the wheel and its file."""
