"""The pages of the shop."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import include, path

from tests.contrib.shop.orders import views

urlpatterns: list[Any] = [
    path("admin/", admin.site.urls),
    path("ops/fusion/", include("fusion.contrib.django.urls")),
    path("orders/plainly/<str:number>", views.take_plainly),
    path("orders/<str:way>/<str:number>", views.take),
]
