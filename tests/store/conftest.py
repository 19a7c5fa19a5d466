"""The small fleet as a fixture; every test begins with nothing cached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store.small_fleet import Fleet, make_fleet

from gpufleet.store.layouts import forget_layouts
from gpufleet.store.names import forget_names


@pytest.fixture(autouse=True)
def cold_cache() -> Iterator[None]:
    forget_layouts()
    forget_names()
    yield
    forget_layouts()
    forget_names()


@pytest.fixture
def fleet(db: None) -> Fleet:
    return make_fleet()
