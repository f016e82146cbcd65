"""The migration makes the tables of the models."""

from django.core.management import call_command


def test_no_migration_is_missing():
    call_command("makemigrations", "in_django", check=True, dry_run=True)
