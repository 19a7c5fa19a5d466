"""One target tried at once: who may, how often, what the worker does, and what is left alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test import Client
from factories import MadeFleet, make_fleet, make_user

from gpufleet.accounts.models import AuditEntry
from gpufleet.celery import app
from gpufleet.core.times import utc_now
from gpufleet.fleet.models import Target
from gpufleet.pipeline import retrying
from gpufleet.scrape.models import TargetStatus

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_tries")]
BODY = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 61\nDCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1"} x\n'


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What would have gone to a worker; the messages of Celery end here."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(app, "send_task", lambda name, args, **more: found.append((name, args, more["queue"])))
    return found


@pytest.fixture
def exporter() -> Iterator[list[Any]]:
    """[address, times asked]: a real exporter on loopback."""
    told: list[Any] = ["", 0]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told[1] += 1
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    told[0] = f"http://127.0.0.1:{server.server_port}/metrics"
    yield told
    server.shutdown()
    server.server_close()


def signed_in(role: str) -> Client:
    client = Client()
    client.force_login(make_user(role))
    return client


def post(client: Client, made: MadeFleet, target: int = 0) -> Any:
    return client.post(f"/targets/{made.targets[target].pk}/retry/", headers={"HX-Request": "true"})


@pytest.mark.parametrize("role", ["viewer", "manager"])
def test_readers_may_not(role: str, sent: list[Any]) -> None:
    made = make_fleet(utc_now(), nodes=1)
    client = signed_in(role)
    assert "Re-try" not in client.get("/targets/").content.decode().replace(">Re-try<", "")
    assert post(client, made).status_code == 403
    assert (sent, AuditEntry.objects.count(), retrying.tries([made.targets[0].pk])) == ([], 0, {})


def test_a_stranger_is_sent_to_the_sign_in(sent: list[Any]) -> None:
    made = make_fleet(utc_now(), nodes=1)
    assert post(Client(), made)["HX-Redirect"].startswith("/sign-in/")
    assert Client().post(f"/targets/{made.targets[0].pk}/retry/").status_code == 302
    forger = Client(enforce_csrf_checks=True)
    forger.force_login(make_user("admin"))
    assert forger.post(f"/targets/{made.targets[0].pk}/retry/").status_code == 403
    assert (sent, AuditEntry.objects.count()) == ([], 0)


@pytest.mark.parametrize("role", ["responder", "admin"])
def test_who_acts_may_and_it_is_written_down(role: str, sent: list[Any]) -> None:
    made = make_fleet(utc_now(), nodes=1)
    answer = post(signed_in(role), made)
    assert answer.status_code == 200
    assert "asking the exporter" in answer.content.decode()
    ((name, arguments, queue),) = sent
    assert (name, arguments[0], queue) == ("pipeline.retry_target", made.targets[0].pk, "scrape")
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.verb, entry.subject) == (role, "target.retry", "http://gpu-001:9400/metrics")


def test_a_sick_target_is_not_hammered(sent: list[Any]) -> None:
    made = make_fleet(utc_now(), nodes=2)
    client, other = signed_in("responder"), signed_in("admin")
    assert post(client, made).status_code == 200
    for again in (client, other):
        answer = post(again, made)
        assert answer.status_code == 429
        assert 1 <= int(answer["Retry-After"]) <= 15
        assert "tried a moment ago" in answer.content.decode()
    assert post(other, made, 1).status_code == 200
    assert (len(sent), AuditEntry.objects.count()) == (2, 2)


def test_nor_all_of_them_at_once(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_fleet(utc_now(), nodes=4)
    monkeypatch.setattr(retrying, "MOST_A_MINUTE", 2)
    now = utc_now().replace(second=10)
    for target in made.targets[:2]:
        retrying.ask(target, actor="a", source="page", now=now)
    for target in made.targets[2:]:
        with pytest.raises(retrying.RetryRefused) as refused:
            retrying.ask(target, actor="a", source="page", now=now)
        assert refused.value.seconds == 50
    assert len(sent) == 2


def test_without_a_broker_it_says_so_and_changes_nothing(sent: list[Any], settings: Any) -> None:
    made = make_fleet(utc_now(), nodes=1)
    client = signed_in("responder")
    settings.BROKER_URL = "redis://127.0.0.1:1/0"
    answer = post(client, made)
    assert answer.status_code == 503
    assert "cannot be reached" in answer.content.decode()
    assert (sent, AuditEntry.objects.count()) == ([], 0)
    assert client.get("/targets/").status_code == 200


def test_the_worker_asks_once_and_leaves_the_cycle_alone(exporter: list[Any], sent: list[Any]) -> None:
    made = make_fleet(utc_now(), nodes=1)
    target = made.targets[0]
    Target.objects.filter(pk=target.pk).update(url=exporter[0], trusted=True)
    before = (TargetStatus.objects.get(target=target).last_scrape_at, frames())
    client = signed_in("responder")
    post(client, made)
    future = retrying.run(*sent[0][1])
    assert future is not None
    future.result(10)
    assert exporter[1] == 1
    probed = retrying.tries([target.pk])[target.pk].probed
    assert probed is not None
    assert (probed.reason, probed.accepted, probed.rejected, probed.gpus) == ("", 1, 1, 1)
    assert (TargetStatus.objects.get(target=target).last_scrape_at, frames()) == before
    cell = client.get(f"/targets/{target.pk}/retry/").content.decode()
    assert "answered: 1 samples, 1 GPUs, 1 rejected" in cell
    assert "hx-trigger" not in cell
    assert "answered: 1 samples" in client.get("/targets/").content.decode()


def test_a_failure_is_told_with_its_reason_and_networks_hold(exporter: list[Any], sent: list[Any]) -> None:
    made = make_fleet(utc_now(), nodes=1)
    target = made.targets[0]
    Target.objects.filter(pk=target.pk).update(url=exporter[0], trusted=False)
    retrying.ask(target, actor="a", source="page", now=utc_now())
    future = retrying.run(*sent[0][1])
    assert future is not None
    future.result(10)
    probed = retrying.tries([target.pk])[target.pk].probed
    assert probed is not None
    assert (probed.reason, exporter[1]) == ("forbidden address", 0)


def test_a_target_that_is_gone_is_not_asked(exporter: list[Any]) -> None:
    made = make_fleet(utc_now(), nodes=1)
    Target.objects.filter(pk=made.targets[0].pk).update(url=exporter[0], removed_at=utc_now())
    assert retrying.run(made.targets[0].pk, 0.0, "a") is None
    assert signed_in("admin").post(f"/targets/{made.targets[0].pk}/retry/").status_code == 404


def test_nobody_took_it_up() -> None:
    made = make_fleet(utc_now(), nodes=1)
    retrying._keep(made.targets[0].pk, retrying.Try(utc_now().timestamp() - 31, "a"))
    assert "No worker took it up" in signed_in("viewer").get("/targets/").content.decode()


def test_the_task_is_one_that_the_worker_knows() -> None:
    app.loader.import_default_modules()
    assert retrying.TASK in app.tasks
    assert django_settings.BROKER_URL


def frames() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM store_frame")
        return int(cursor.fetchone()[0])
