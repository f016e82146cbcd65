"""How long a transaction may be left alone."""

from sparrowmq.broker.transactions.open_transactions import TransactionRules


def test_no_immunity_is_longer_than_messages_are_kept() -> None:
    rules = TransactionRules(retention_ms=60_000)
    assert [rules.immune_ms(own_s) for own_s in (0, 59, 60, 10**14)] == [0, 59_000, 60_000, 60_000]
