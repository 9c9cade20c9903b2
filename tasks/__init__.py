"""This service's tasks. Importing the package imports them all: a worker does it once, before the first job, and every job's process
has them from the start."""

from __future__ import annotations

from . import email as email
from . import maintenance as maintenance
from . import pn as pn
from . import sms as sms
from . import webhook as webhook
from . import whatsapp as whatsapp
