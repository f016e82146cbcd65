"""A Django with a database in a file of each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import django
import pytest
from django.conf import settings

if not settings.configured:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["sparrowmq.once.in_django"],
        USE_TZ=True,
    )
    django.setup()


@pytest.fixture(autouse=True)
def database(tmp_path: Path) -> Iterator[Path]:
    from django.core.management import call_command
    from django.db import connections

    path = tmp_path / "django.db"
    connections.close_all()
    connections["default"].settings_dict["NAME"] = connections.databases["default"]["NAME"] = str(path)
    call_command("migrate", verbosity=0)
    yield path
    connections.close_all()
