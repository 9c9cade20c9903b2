"""For a worker of tests that loads the shop's modules without manage.py."""

from __future__ import annotations

import django

django.setup()
