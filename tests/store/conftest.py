"""The small fleet as a fixture; every test begins with nothing cached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from store.small_fleet import Fleet, make_fleet

from gpufleet.store.layouts import forget_layouts
from gpufleet.store.names import forget_names
from gpufleet.store.partitions import LADDERS, present


@pytest.fixture(autouse=True)
def cold_cache() -> Iterator[None]:
    forget_layouts()
    forget_names()
    yield
    forget_layouts()
    forget_names()


@pytest.fixture
def no_partitions(db: None) -> None:
    """What tests outside a transaction left behind would be sealed or dropped here."""
    with connection.cursor() as cursor:
        for ladder in LADDERS:
            for name in present(ladder):
                cursor.execute(f"DROP TABLE {name}")


@pytest.fixture
def fleet(no_partitions: None) -> Fleet:
    return make_fleet()
