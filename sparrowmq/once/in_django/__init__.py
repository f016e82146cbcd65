"""Marks and an outbox in Django's database: add "sparrowmq.once.in_django" to INSTALLED_APPS, and migrate.

The classes are in `in_django.orm`: Django imports this module before models may be loaded.
"""
