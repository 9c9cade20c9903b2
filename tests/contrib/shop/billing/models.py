"""What is owed."""

from __future__ import annotations

from django.db import models

from tests.contrib.shop.orders.models import Order


class Invoice(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    amount = models.DecimalField(max_digits=12, decimal_places=2)
