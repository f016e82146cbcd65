"""`./run fuzz --handles` forges handles, and finds those that a broker accepts."""

import pytest

from sparrowmq.broker.transactions.transactions import Transactions
from tests.fuzz import handles


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(handles, "_DUE_S", 4.0)


@pytest.mark.slow
def test_no_forged_handle_is_accepted(capsys):
    assert handles.attack(1, 300) == []
    assert "100 receipt handles, 100 transaction handles, 100 recall handles" in capsys.readouterr().out


@pytest.mark.slow
def test_a_broker_that_does_not_look_at_transaction_ids_is_found(monkeypatch):
    monkeypatch.setattr(handles, "_LATE_S", 0.0)
    end = Transactions.end
    monkeypatch.setattr(Transactions, "end", lambda *a, transaction_id, **more: end(*a, **more))
    found = handles.attack(1, 60)
    assert any(each.startswith("accepted: Guess(kind='transaction'") for each in found)
    assert any(each.startswith("visible too early: b'TRANSACTION'") for each in found)
