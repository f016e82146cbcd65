"""The tables of `models`."""

from __future__ import annotations

from time import time

from django.db import migrations, models


class Migration(migrations.Migration):
    """Creates both tables."""

    initial = True
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            "Mark",
            [
                ("mark", models.CharField(max_length=64, primary_key=True, serialize=False)),
                ("marked_at", models.FloatField(default=time, db_index=True)),
            ],
            {"db_table": "once_marks"},
        ),
        migrations.CreateModel(
            "Waiting",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("due", models.FloatField(default=time, db_index=True)),
                ("fifo", models.CharField(max_length=255, db_index=True)),
                ("topic", models.CharField(max_length=255)),
                ("body", models.BinaryField()),
                ("fields", models.TextField()),
            ],
            {"db_table": "once_outbox"},
        ),
    ]
