"""The made-up record: the same for the same seed, inside its time, at the stated rate, and complete in its boards."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpufleet.simulator.fleet import make_nodes
from gpufleet.simulator.past import COLUMNS, main, make_past
from gpufleet.simulator.schedule import FAULTS_PER_GPU_HOUR

UNTIL = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NODES = make_nodes(63, 8, 1)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.csv", "two.csv"):
        asked = ["--days", "30", "--until", "2026-11-20T12:00:00Z", "--seed", "3", "--out", str(tmp_path / name)]
        assert main(asked) == 0
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()
    assert (tmp_path / "one.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    assert make_past(NODES, 3, 30, UNTIL) != make_past(NODES, 4, 30, UNTIL)


def test_all_of_it_lies_inside_and_two_records_agree_where_they_overlap() -> None:
    long, short = make_past(NODES, 1, 60, UNTIL), make_past(NODES, 1, 30, UNTIL)
    assert all(UNTIL - timedelta(days=60) <= row.starts_at < row.ends_at <= UNTIL for row in long)
    since = UNTIL - timedelta(days=30)
    assert [row for row in long if row.starts_at > since] == [row for row in short if row.starts_at > since]


def test_every_board_is_named_once_a_month() -> None:
    rows = make_past(NODES, 1, 30, UNTIL)
    boards = Counter(row.gpu_uuid for row in rows if row.planned)
    assert set(boards) == {gpu.uuid for node in NODES for gpu in node.gpus}
    assert set(boards.values()) == {1}


def test_failures_come_at_the_rate_and_lemons_lead() -> None:
    days = 400
    failures = [row for row in make_past(NODES, 1, days, UNTIL) if not row.planned]
    expected = FAULTS_PER_GPU_HOUR * 24 * 504 * days
    assert abs(len(failures) - expected) < 5 * expected**0.5
    by_node = Counter(row.node for row in failures).most_common(3)
    assert sum(count for _, count in by_node) > len(failures) * 0.25


@pytest.mark.parametrize("days", ["0", "401"])
def test_days_have_a_limit(tmp_path: Path, days: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--days", days, "--until", "2026-11-20T12:00:00Z", "--out", str(tmp_path / "x.csv")]) == 2
    assert "days must be 1 to 400" in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()
