"""Options that read, and options that send.

A SQL table is read and written, so each direction ignores the options of the other. In all other cases an option of
the other direction is an error, as it has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import SinkOptions, SourceOptions, StoredOptions


def names_of(*kinds: type[Any]) -> frozenset[str]:
    """All names of the options of some kinds, in lower case."""
    return frozenset(name.lower() for kind in kinds for entry in fields(kind) for name in entry.metadata["names"])


_READING = names_of(SourceOptions, StoredOptions)
_SENDING = names_of(SinkOptions)


def demand_reading(given: Mapping[str, str]) -> None:
    """Raises: ConfigError, an option says how messages are sent."""
    for name in given:
        if name.lower() in _SENDING - _READING:
            raise ConfigError(f"option {name} says how messages are sent, and here they are read; leave it out")


def demand_sending(given: Mapping[str, str]) -> None:
    """Raises: ConfigError, an option says what is read, and how."""
    for name in given:
        if name.lower() in _READING - _SENDING:
            raise ConfigError(
                f"option {name} says what is read, and here messages are sent: it would leave nothing out; drop it"
            )
