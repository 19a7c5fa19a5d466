"""The month page: figures as the ledger has them, what lies behind them, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from factories import make_user

from gpufleet.availability.outage_file import Outage
from gpufleet.availability.outage_import import import_outages
from gpufleet.fleet.models import Cluster
from gpufleet.incidents.models import Incident

MARCH = "/availability/2026-03/"


@pytest.fixture
def record(db: None) -> Cluster:
    cluster = Cluster.objects.create(name="default")
    start = datetime(2026, 3, 3, 20, tzinfo=UTC)
    rows = [
        Outage("gpu-001", "GPU-1", start, start + timedelta(hours=8), False, "<b>XID 79</b>"),
        Outage("gpu-002", "GPU-2", start, start + timedelta(hours=6), True, "firmware"),
    ]
    cover = (datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC))
    now = datetime(2026, 6, 1, tzinfo=UTC)
    import_outages(cluster, rows, cover=cover, source="a.csv", actor="import_outages", now=now)
    return cluster


def test_figures_against_the_target(viewer: Client, record: Cluster) -> None:
    text = viewer.get(MARCH).content.decode()
    # 2 GPUs of 744 hours, 6 planned, 8 lost: 1474 of 1482 hours
    assert "<b>99.46 %</b>" in text
    assert "<b>8.0</b>" in text
    assert "planned 6.0</a>" in text
    assert "target 99.50 % missed" in text or "target 99.5 % missed" in text
    assert "8.0 of 7.4 GPU-h so far" in text
    assert "&lt;b&gt;XID 79&lt;/b&gt;" in text
    assert "<b>XID 79</b>" not in text
    assert 'aria-label="gpu-001, 2026-03-04: 4.0 GPU-h lost"' in text


def test_each_number_opens_to_its_intervals(viewer: Client, record: Cluster) -> None:
    text = viewer.get(MARCH + "?node=gpu-001&state=failed").content.decode()
    assert f'href="/incidents/{Incident.objects.get().pk}/"' in text
    assert text.count('<th scope="row">') == 1
    assert "2026-03-03T20:00:00Z" in text
    assert viewer.get(MARCH + "?node=gpu-001&day=20&state=failed").content.decode().count('<th scope="row">') == 0


def test_the_zone_moves_the_days(viewer: Client, record: Cluster) -> None:
    text = viewer.get(MARCH + "?tz=Asia/Tokyo").content.decode()
    assert 'aria-label="gpu-001, 2026-03-04: 8.0 GPU-h lost"' in text


def test_the_month_of_now(viewer: Client, record: Cluster) -> None:
    answer = viewer.get("/availability/?tz=Pacific/Kiritimati")
    assert answer.status_code == 302
    assert answer.headers["Location"].endswith("/?tz=Pacific%2FKiritimati")
    assert viewer.get("/availability/2026-01/?pick=2026-03&tz=UTC").headers["Location"] == f"{MARCH}?tz=UTC"


def test_empty_and_future_months_say_so(viewer: Client, record: Cluster) -> None:
    assert "holds nothing of this month" in viewer.get("/availability/2020-01/").content.decode()
    assert "has not begun" in viewer.get("/availability/2120-01/").content.decode()


def test_a_table_to_take_along(viewer: Client, record: Cluster) -> None:
    answer = viewer.get(MARCH + "?csv=node")
    assert answer.headers["Content-Type"].startswith("text/csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="availability-2026-03-node.csv"'
    assert [line.split(",")[0] for line in answer.content.decode().splitlines()] == ["subject", "gpu-001", "gpu-002"]


@pytest.mark.parametrize(
    "path",
    [
        "/availability/2026-13/", "/availability/x/", MARCH + "?tz=Mars", MARCH + "?csv=secrets", MARCH + "?day=32",
        MARCH + "?day=-1", MARCH + "?pick=no", "/availability/?tz=../x",
    ],
)  # fmt: skip
def test_what_is_not_there(viewer: Client, record: Cluster, path: str) -> None:
    assert viewer.get(path).status_code == 404


@pytest.mark.parametrize("role", ["viewer", "responder", "manager", "admin"])
def test_every_role_reads_it(client: Client, record: Cluster, role: str) -> None:
    client.force_login(make_user(role), backend="django.contrib.auth.backends.ModelBackend")
    assert client.get(MARCH).status_code == 200


def test_a_stranger_is_sent_to_sign_in(client: Client, record: Cluster) -> None:
    for path in (MARCH, "/availability/", MARCH + "?csv=node"):
        answer = client.get(path)
        assert answer.status_code == 302
        assert answer.headers["Location"].startswith("/sign-in/")
