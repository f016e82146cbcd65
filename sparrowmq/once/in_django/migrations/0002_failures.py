"""The columns of refused rows."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Counts refusals, and keeps the last one's reason."""

    dependencies = [("in_django", "0001_initial")]  # noqa: RUF012
    operations = [  # noqa: RUF012
        migrations.AddField("Waiting", "failures", models.IntegerField(default=0)),
        migrations.AddField("Waiting", "error", models.TextField(null=True)),
    ]
