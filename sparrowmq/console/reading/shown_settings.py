"""The settings of brokers and name servers as the console shows them, to visitors of all roles: without secrets.

SparrowMQ's servers hide their secrets, Apache's send them. So other files of the console read settings only here.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.client.admin import operations
from sparrowmq.client.admin.operations import Asker

HIDDEN: Final = "••••••"
_SECRET: Final = (
    "secret",
    "password",
    "privatekey",
    "credential",
    "token",
    "authenticationuser",
    "exporterheader",
)
_SECRET_MEMBERS: Final = ('"secretkey"', '"password"')  # of a value in JSON


def hidden(key: str, value: str) -> str:
    """The value of a setting, unless it is a secret."""
    is_secret = any(word in key.lower() for word in _SECRET)
    return HIDDEN if value and (is_secret or any(word in value.lower() for word in _SECRET_MEMBERS)) else value


async def broker_settings(asker: Asker, address: str) -> dict[str, str]:
    """Return the settings of a broker by key."""
    return _shown(await operations.broker_settings(asker, address))


async def namesrv_settings(asker: Asker, address: str) -> dict[str, str]:
    """Return the settings of a name server by key."""
    return _shown(await operations.namesrv_settings(asker, address))


def _shown(settings: dict[str, str]) -> dict[str, str]:
    return {key: hidden(key, value) for key, value in settings.items()}
