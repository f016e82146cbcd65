"""python manage.py bill: write a bill for each order, until Ctrl-C or SIGTERM."""

from django.core.management.base import BaseCommand

from sparrowmq import sync
from sparrowmq.once import idempotent
from sparrowmq.once.in_django.orm import DjangoStore

from ...models import Bill


class Command(BaseCommand):
    help = "Write a bill for each order."

    def handle(self, *_args: object, **_options: object) -> None:
        mq = sync.connect()

        @mq.handler("orders", group="billing", start="earliest", concurrency=2)
        @idempotent(DjangoStore(), name="billing")
        def bill(order: str) -> None:
            Bill.objects.create(order=order)

        mq.run()
