"""The event stream, for an ASGI server. Plain pages are three to four times slower here: serve those from wsgi.py."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")
application = get_asgi_application()
