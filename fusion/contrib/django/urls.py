"""`path("fusion/", include("fusion.contrib.django.urls"))`: the dashboard, at any path."""

from __future__ import annotations

from django.urls import re_path

from fusion.contrib.django.dashboard import dashboard

app_name = "fusion"
urlpatterns = [re_path(r"^(?P<path>.*)$", dashboard, name="dashboard")]
