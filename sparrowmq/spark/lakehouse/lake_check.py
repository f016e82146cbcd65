"""Says what a file of settings does with the topics that there are, without Spark and without writing."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from sparrowmq.errors import ConfigError
from sparrowmq.spark.lakehouse.lake_runner import source_options
from sparrowmq.spark.lakehouse.lake_settings import LakeSettings
from sparrowmq.spark.pipelines.lake.address import Address
from sparrowmq.spark.pipelines.lake.catalogs import identifier_of, open_catalog, secrets_in
from sparrowmq.spark.pipelines.lake.waiting import Patience, errors_of_libraries
from sparrowmq.spark.pipelines.tables.begun_table import begun_at, state_of
from sparrowmq.spark.source.topic_choice import is_meant
from sparrowmq.spark.worker_network import connect

OWN_CATALOGS: Final = (
    "each Iceberg table without a catalog has its own, catalog.db in its state, so no engine lists them all; write "
    "catalog and table to have them in one, before their first start"
)
_ANY: Final = re.compile(".*")


def checked(settings: LakeSettings) -> list[str]:
    """Return a line for each topic that becomes a table, and one for those that do not.

    Raises:
        ConfigError: a topic's table is of other settings, or its place cannot be used, or is away.
        NetworkError: the brokers cannot be asked.
    """
    with connect(source_options(settings)) as network:
        topics = network.retrying(network.topics)
    lines, wrong = [], []
    for topic in sorted(topics):
        if settings.of(topic) is None:
            continue
        try:
            lines.append(_line(settings, topic))
        except ConfigError as error:
            wrong.append(f"{topic}: {error}")
    if wrong:
        raise ConfigError("; ".join(wrong))
    used = Counter(_pattern_of(settings, topic) for topic in topics)
    lines += [
        f'[tables."{pattern.pattern}"] fits no topic yet'
        for pattern, _ in settings.sections
        if not used[pattern.pattern]
    ]
    if any(_has_own_catalog(settings, topic) for topic in topics):
        lines.append(OWN_CATALOGS)
    users = [topic for topic in topics if _is_users(topic)]
    kept = sum(settings.of(topic) is not None for topic in users)
    return [*lines, f"{kept:,} of {len(users):,} topics of users become tables; nothing was written"]


def _has_own_catalog(settings: LakeSettings, topic: str) -> bool:
    section = settings.of(topic)
    return section is not None and section.format == "iceberg" and section.catalog is None


def _line(settings: LakeSettings, topic: str) -> str:
    section = settings.of(topic)
    assert section is not None
    root = section.root(topic)
    begun = begun_at(root, section.settled(topic))
    if isinstance(root, Address):
        _look_at(root)
    parent = next(each for each in state_of(root).parents if each.exists())
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"{parent} cannot be written by this user; give the user the permission")
    what = "goes on with" if begun else "begins"
    return f"{topic}: {what} {section.format} at {root}, mode {section.mode}, partition {section.partition}"


def _look_at(root: Address) -> None:
    """Raises: ConfigError, the store or the catalog is not there."""
    _ask(root, root.url, root.storage.demand_bucket)
    if root.catalog is not None:
        _ask(root, f"the catalog {root.catalog.name}", partial(_ask_catalog, root))


def _ask_catalog(root: Address) -> None:
    open_catalog(root, root.state).table_exists(identifier_of(root))


def _ask(root: Address, what: str, do: Callable[[], None]) -> None:
    """Raises: ConfigError, also for what libraries raise."""
    patience = Patience(what, secrets=secrets_in(root), limit_s=0)
    try:
        patience.over(do)
    except ConnectionError as error:
        raise ConfigError(str(error)) from None
    except errors_of_libraries() as error:
        raise ConfigError(f"{what}: {patience.reason(error)}") from None


def _pattern_of(settings: LakeSettings, topic: str) -> str:
    return next((pattern.pattern for pattern, _ in settings.sections if is_meant(pattern, topic)), "")


def _is_users(topic: str) -> bool:
    return is_meant(_ANY, topic)
