"""The exit status of the commands."""

from __future__ import annotations

from typing import Final

from sparrowmq.errors import ConfigError, InvalidFilter, InvalidName

INCOMPLETE: Final = 3  # all is done, but what brokers have that did not answer
INTERRUPTED: Final = 130  # as a shell reports a program that Ctrl-C ended


def exit_status(error: BaseException) -> int:
    """Return the exit status of every command of `sparrowmq` that ends with an error.

    2    the command line, a name or a setting is wrong: the same command fails at every cluster
    1    everything else: a server failed or refused, or the thing does not exist

    0 is done. A command also ends with 1 if its answer lacks brokers, or if it checks something and finds it wrong. 3
    is a run of a pipeline with --once that lacks the messages of brokers which were away.
    """
    return 2 if isinstance(error, ConfigError | InvalidName | InvalidFilter) else 1
