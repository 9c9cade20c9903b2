"""What is ordered."""

from __future__ import annotations

from django.db import models


class Customer(models.Model):
    name = models.CharField(max_length=100)


class Order(models.Model):
    customer = models.ForeignKey(Customer, null=True, on_delete=models.CASCADE)
    number = models.CharField(max_length=40, unique=True)
    state = models.CharField(max_length=20, default="new")
    runs = models.IntegerField(default=0)
