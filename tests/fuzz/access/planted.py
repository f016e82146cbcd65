"""Harm that tests plant: a broker that leaves one of its checks out, so that the judge has something to find."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from sparrowmq.auth import permissions
from sparrowmq.broker.transactions.transactions import TransactionRights
from sparrowmq.protocol.messages.recalls import Recalls


def check_no_permission(monkeypatch: pytest.MonkeyPatch, codes: Collection[int]) -> None:
    """As if the broker checked no permission for these requests."""
    check = permissions.check

    def lenient(account, row, asked, source):
        if row.code not in codes:
            check(account, row, asked, source)

    monkeypatch.setattr(permissions, "check", lenient)


def ask_for_no_owner(monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
    """As if each account with PUB of the topic were the owner of its transactions, or of its messages for a time."""
    include = Recalls.include

    def of_any_owner(self, topic, unique_id, owner):
        return include(self, topic, unique_id, None)

    if kind is Recalls:
        monkeypatch.setattr(Recalls, "include", of_any_owner)
    else:
        monkeypatch.setattr(TransactionRights, "check", lambda *_: None)
