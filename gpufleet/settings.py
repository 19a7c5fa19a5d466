"""Django settings. Values come from the environment through gpufleet/environment.py; nothing else reads it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, cast

from gpufleet import environment
from gpufleet.databases import broker_url, database
from gpufleet.logs import LOGGING_CONFIG, configure_logs

BASE_DIR = Path(__file__).resolve().parent.parent

try:
    ENV: dict[str, Any] = environment.read(os.environ)
except environment.SettingError as error:
    sys.exit(f"gpufleet: {error}")

DEBUG: bool = ENV["GPUFLEET_DEBUG"]
SECRET_KEY: str = ENV["GPUFLEET_SECRET_KEY"] or "not-secret-only-for-checks-and-type-analysis"
ALLOWED_HOSTS: list[str] = ENV["GPUFLEET_ALLOWED_HOSTS"]
CSRF_TRUSTED_ORIGINS: list[str] = ENV["GPUFLEET_TRUSTED_ORIGINS"]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django_htmx",
    "axes",
    "gpufleet.accounts",
    "gpufleet.fleet",
    "gpufleet.store",
    "gpufleet.scrape",
    "gpufleet.detect",
    "gpufleet.incidents",
    "gpufleet.availability",
    "gpufleet.pipeline",
    "dashboards",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "dashboards.csp.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "dashboards.sign_in.SignInRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "gpufleet.urls"
WSGI_APPLICATION = "gpufleet.wsgi.application"
ASGI_APPLICATION = "gpufleet.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "dashboards.shell.shell",
            ],
            "loaders": [
                ("django.template.loaders.cached.Loader", ["django.template.loaders.filesystem.Loader"]),
            ],
        },
    }
]

DATABASES = {"default": database(ENV["DATABASE_URL"])}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "fleet"
LOGOUT_REDIRECT_URL = "sign-in"
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 0.25  # hours
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_IPWARE_PROXY_COUNT = 0
AXES_IPWARE_META_PRECEDENCE_ORDER = ["REMOTE_ADDR"]
AXES_ENABLE_ADMIN = False
AXES_LOCKOUT_CALLABLE = "dashboards.sign_in.locked_out"

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = ENV["GPUFLEET_SECURE_COOKIES"]
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_SAVE_EVERY_REQUEST = False
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SECURE_CSP = {
    "default-src": ["'none'"],
    "script-src": ["'self'"],
    "style-src": ["'self'"],
    "img-src": ["'self'", "data:", "blob:"],
    "font-src": ["'self'"],
    "connect-src": ["'self'"],  # and the event stream's origin, which dashboards.csp adds
    "worker-src": ["'self'"],
    "base-uri": ["'none'"],
    "form-action": ["'self'"],
    "frame-ancestors": ["'none'"],
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = BASE_DIR / "static-collected"
STORAGES = {
    "staticfiles": {"BACKEND": "dashboards.static_storage.HashedModules"},
}

BROKER_URL = broker_url(ENV["BROKER_URL"])
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": BROKER_URL}}

LOGGING_CONFIG = LOGGING_CONFIG
LOGGING: dict[str, Any] = {}
configure_logs(cast("str", ENV["GPUFLEET_LOG_FORMAT"]), cast("str", ENV["GPUFLEET_LOG_LEVEL"]))
