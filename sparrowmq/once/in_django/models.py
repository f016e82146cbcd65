"""The tables of marks and of the outbox, as Django's models."""

from __future__ import annotations

from time import time

from sparrowmq.errors import ConfigError

try:
    from django.db import models
except ImportError as error:
    raise ConfigError(f"{__name__} needs the package django: pip install 'sparrowmq[django]'") from error


class Mark(models.Model):
    """A handler has handled a message."""

    mark = models.CharField(max_length=64, primary_key=True)
    marked_at = models.FloatField(default=time, db_index=True)

    class Meta:
        db_table = "once_marks"


class Waiting(models.Model):
    """A message that waits in the outbox; the columns are those of `relay.Row`."""

    id = models.BigAutoField(primary_key=True)
    due = models.FloatField(default=time, db_index=True)
    fifo = models.CharField(max_length=255, db_index=True)
    topic = models.CharField(max_length=255)
    body = models.BinaryField()
    fields = models.TextField()
    failures = models.IntegerField(default=0)
    error = models.TextField(null=True)

    class Meta:
        db_table = "once_outbox"
