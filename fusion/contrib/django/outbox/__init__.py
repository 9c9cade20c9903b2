"""The outbox of a Django project: put `fusion.contrib.django.outbox` into INSTALLED_APPS and migrate. Guide: docs/outbox.md."""
