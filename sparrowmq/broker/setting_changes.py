"""The settings of each part of a broker, at the start and after a change (`sparrowmq.settings.live_settings`).

A part with changeable settings takes the new ones by its `use`. A part that needs a setting at every step, such as the
period of registration, reads it from the settings each time.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from sparrowmq.auth.rotated_file import denials_file
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.handlers.pull_handler import PullRules
from sparrowmq.broker.handlers.send_handler import SendRules
from sparrowmq.broker.held_pulls import HeldLimits
from sparrowmq.broker.transactions.transaction_rules import TransactionRules
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.store.message_store import MessageStore


def send_rules(settings: BrokerSettings, store: MessageStore) -> SendRules:
    return SendRules(settings.max_message_bytes, store.settings.store_host, settings.name)


def pull_rules(settings: BrokerSettings) -> PullRules:
    rules = PullRules(
        settings.name,
        settings.max_pull_messages,
        settings.max_pull_bytes,
        near_bytes=memory_bytes(settings) if settings.slave_reads else None,
        serves=settings.slave_reads or not settings.is_slave,
        keeps_offsets=not settings.is_slave,
        held_limits=HeldLimits(settings.max_held_pulls, settings.max_held_pulls_of_one),
    )
    return rules if settings.long_polling else replace(rules, longest_hold_ms=settings.short_polling_ms)


def transaction_rules(settings: BrokerSettings) -> TransactionRules:
    return TransactionRules(
        timeout_ms=settings.transaction_timeout_ms,
        interval_ms=settings.transaction_interval_ms,
        most_checks=settings.transaction_checks,
        retention_ms=settings.retention_h * 3_600_000,
        rejected=settings.reject_transactions,
        is_masters=settings.is_slave,
    )


def memory_bytes(settings: BrokerSettings) -> int:
    """The bytes at the log's end that count as being in memory (accessMessageInMemoryMaxRatio)."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return settings.memory_percent * whole // 100


def use_in_store(settings: BrokerSettings, store: MessageStore) -> None:
    """Let the store flush, delete and scrub by the new settings, from its next look on. Its other settings stay."""
    store.settings = settings.of_running_store(store.settings)


_MISSING: Final = {Perm.READ_WRITE: "", Perm.READ: "takes no messages", Perm.WRITE: "gives no messages"}


def less_than_all(settings: BrokerSettings) -> str:
    """Return what a broker with these settings does not do, and the settings; "" if it does all."""
    missing = _MISSING.get(settings.permission & Perm.READ_WRITE, "neither takes nor gives messages")
    found = [f"it {missing}: brokerPermission = {settings.permission}"] if missing else []
    return "; ".join([*found, "producers do not find it: drained = true"] if settings.drained else found)


def named_in_remedies(settings: BrokerSettings, file: Path | None) -> dict[str, str]:
    """Return what words in remedies stand for at a broker with these settings, which its file keeps."""
    return {
        "NAME": settings.name,
        "STORE": str(settings.store_path),
        "CONF": str(file or ""),
        "DENIED": str(denials_file(settings.audit_file)),
    }
