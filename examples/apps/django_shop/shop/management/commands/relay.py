"""python manage.py relay: send the messages of the outbox, until Ctrl-C or SIGTERM."""

from django.core.management.base import BaseCommand

from sparrowmq import sync
from sparrowmq.once.in_django.orm import DjangoOutbox


class Command(BaseCommand):
    help = "Send the messages of the outbox."

    def handle(self, *_args: object, **_options: object) -> None:
        sync.connect().run(DjangoOutbox().relay)
