"""Orders and their bills."""

from django.db import models


class Order(models.Model):
    id = models.CharField(max_length=32, primary_key=True)


class Bill(models.Model):
    id = models.BigAutoField(primary_key=True)
    order = models.CharField(max_length=32)
