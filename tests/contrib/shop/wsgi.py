"""The shop for servers; SHOP_WORKER has it start a worker beside itself, as small sites do."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

from fusion import EmbeddedWorker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.contrib.shop.settings")
application = get_wsgi_application()
if os.environ.get("SHOP_WORKER"):
    EmbeddedWorker().start()
