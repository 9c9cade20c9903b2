"""Fusion on the index of the admin: how many jobs wait, run and have failed, with a link to the dashboard."""

from __future__ import annotations

import time
from typing import Any

import redis.exceptions
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse
from django.utils.functional import lazy

from fusion import get_current_connection
from fusion.contrib.django.permissions import Dashboard
from fusion.exceptions import FusionError
from fusion.store.access import inspector_of

#: Seconds for which counts are reused, and for which an outage is not checked again: each page of the admin shows its index at the side.
_FRESH, _PATIENCE = 5.0, 30.0
_seen: tuple[float, str] = (float("-inf"), "")


def counts() -> str:
    """Return `Jobs: 12 waiting, 3 running, 1 failed`, as of the last seconds."""
    global _seen
    if time.monotonic() < _seen[0]:
        return _seen[1]
    _seen = (time.monotonic() + _PATIENCE, "Jobs")  # others need not wait for the same reply
    try:
        text, fresh = _counted(), _FRESH
    except (redis.exceptions.RedisError, FusionError, OSError):
        text, fresh = "Jobs (Redis can't be reached)", _PATIENCE
    _seen = (time.monotonic() + fresh, text)
    return text


def _counted() -> str:
    inspector = inspector_of(get_current_connection())
    queues = inspector.queues(inspector.queue_names())
    waiting, running = sum(queue.count for queue in queues), sum(queue.started for queue in queues)
    return f"Jobs: {waiting:,} waiting, {running:,} running, {inspector.totals().failed:,} failed"


@admin.register(Dashboard)
class DashboardAdmin(admin.ModelAdmin):
    """A row without a table that leads to the dashboard."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return True for all staff, if the dashboard is mounted."""
        return bool(_mounted() and request.user.is_staff)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return True for all staff, if the dashboard is mounted."""
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return False: no user may add one."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: no user may change one."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False: no user may delete one."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Redirect to the dashboard."""
        return redirect(_mounted() or "admin:index")


def _mounted() -> str | None:
    try:
        return str(reverse("fusion:dashboard", args=[""]))
    except NoReverseMatch:
        return None


# Not in its Meta, since migrations store that.
Dashboard._meta.verbose_name_plural = lazy(counts, str)()
