"""The models have the columns that a row of the relay has."""

from typing import Any

from sparrowmq.once.in_django.models import Mark, Waiting
from sparrowmq.once.relay import Row
from sparrowmq.once.sql import MARKS, OUTBOX


def test_both_kinds_of_database_have_the_same_tables():
    both: list[Any] = [(Mark, MARKS), (Waiting, OUTBOX)]
    for model, table in both:
        assert model._meta.db_table == table.name
        assert {each.column for each in model._meta.get_fields()} == set(table.columns.keys())
    assert set(Row._fields) < set(OUTBOX.columns.keys())
