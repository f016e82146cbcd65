"""Loads the console's server: NiceGUI is an extra of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.client.cluster.credentials import Credentials, Tls
from sparrowmq.console.console_settings import ConsoleSettings
from sparrowmq.errors import ConfigError

if TYPE_CHECKING:
    from sparrowmq.console.console_server import Console


def console_of(settings: ConsoleSettings, *, credentials: Credentials | None = None, tls: Tls = False) -> Console:
    """A console, to be entered. Raises: ConfigError, NiceGUI is not installed."""
    try:
        from sparrowmq.console.console_server import Console
    except ModuleNotFoundError as error:
        raise ConfigError(f"the console needs the module {error.name}: pip install 'sparrowmq[console]'") from error
    return Console(settings, credentials=credentials, tls=tls)
