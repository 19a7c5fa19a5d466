"""A cluster with one node and one GPU, and two responders."""

from __future__ import annotations

import pytest
from incident_findings import START, UUID

from gpufleet.accounts.models import User
from gpufleet.fleet.models import Cluster, Gpu, Node


@pytest.fixture
def cluster(db: None) -> Cluster:
    made = Cluster.objects.create(name="default")
    Node.objects.create(cluster=made, name="gpu-n01")
    Gpu.objects.create(cluster=made, uuid=UUID, first_seen_at=START, last_seen_at=START)
    return made


@pytest.fixture
def ana(db: None) -> User:
    return User.objects.create_user(username="ana", password="correct horse battery", role="responder")


@pytest.fixture
def bo(db: None) -> User:
    return User.objects.create_user(username="bo", password="correct horse battery", role="responder")
