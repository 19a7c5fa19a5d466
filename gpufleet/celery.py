"""The Celery application: broker, queues, and the one table of periodic jobs."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu import Connection

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")

from django.conf import settings  # noqa: E402

from gpufleet.schedule import beat_schedule  # noqa: E402


class BrokerConnection(Connection):
    """Looks for a lost broker every few seconds; Celery's own pauses grow to half a minute, many cycles long."""

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        return super().ensure_connection(
            *args, **{"interval_start": 1, "interval_step": 1, "interval_max": 3, **kwargs}
        )


class Broker(AMQP):
    Connection = BrokerConnection


app = Celery("gpufleet", amqp=Broker)
app.conf.update(
    broker_url=settings.BROKER_URL,
    result_backend=None,
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    timezone="UTC",
    enable_utc=True,
    task_default_queue="maintain",
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,  # a broker that stays away for an hour is still waited for
    broker_transport_options={
        "visibility_timeout": 3600,
        "socket_timeout": 10,
        "socket_connect_timeout": 5,
        "retry_on_timeout": True,
    },
    beat_schedule=beat_schedule(settings.ENV["GPUFLEET_INTERVAL_SECONDS"]),
    # A connection lives for many tasks (a new one costs PostgreSQL as much as a cycle's writes); each task first looks
    # whether it still lives, see pipeline.tasks.
    CELERY_DB_REUSE_MAX=2**31,
    beat_scheduler="gpufleet.schedule:Beat",
    beat_max_loop_interval=1,
    beat_sync_every=1,  # beat's file is touched with each task: its age tells whether beat is alive
)
app.autodiscover_tasks(["gpufleet.pipeline"])
