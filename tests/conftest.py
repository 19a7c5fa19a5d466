"""Fixtures that every room uses."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from django.conf import settings

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(autouse=True, scope="session")
def _quick_passwords() -> None:
    """Users are made by the hundred here: hashing is not what these tests are about."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
