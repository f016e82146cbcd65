"""Two pages: place an order, and look at its bill."""

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

from sparrowmq.once.in_django.orm import add

from .models import Bill, Order


def order(request: HttpRequest, name: str) -> HttpResponse:
    try:
        with transaction.atomic():
            Order.objects.create(id=name)
            add("orders", name.encode(), fifo=name)
    except IntegrityError:
        return HttpResponse(f"{name} was ordered before\n")
    return HttpResponse(f"ordered {name}\n")


def bill(request: HttpRequest, name: str) -> HttpResponse:
    count = Bill.objects.filter(order=name).count()
    return HttpResponse(f"{count} bill for {name}\n", status=200 if count else 503)


urlpatterns = [path("orders/<str:name>", order), path("bills/<str:name>", bill)]
