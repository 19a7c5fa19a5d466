"""The pages and the API, for gunicorn's gthread workers."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")
application = get_wsgi_application()
