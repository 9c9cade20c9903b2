"""Importing this module sets up Django with all its apps, as modules of tasks require. It is imported where jobs run."""

from __future__ import annotations

import django as _django
from django.apps import apps as _apps

if not _apps.ready:
    _django.setup()

from fusion.contrib.django.connections import Connections as _Connections
from fusion.middleware import register as _register

_register(_Connections)
