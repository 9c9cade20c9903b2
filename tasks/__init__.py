"""This service's tasks. Importing the package imports them all: a worker does it once, before the first job, and every job's process
has them from the start."""

from __future__ import annotations

from tasks import email as email
from tasks import maintenance as maintenance
from tasks import pn as pn
from tasks import sms as sms
from tasks import webhook as webhook
from tasks import whatsapp as whatsapp
