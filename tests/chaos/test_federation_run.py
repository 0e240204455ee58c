"""A minute of `scripts/chaos federation`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

import federation_run
from federation_evidence import is_known_as_whole
from federation_run import FederationRun
from federation_schedule import Trouble, draw_incidents, troubles


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_nothing_is_lost_while_nodes_fail_and_clients_move(tmp_path: Path) -> None:
    incidents = list(islice(draw_incidents(1, 5, 3.0), len(troubles(()))))  # each kind once
    report = await FederationRun(tmp_path, print, {"copies": 2, "adopt_after": "5s"}).run(incidents, 600.0)
    assert report.is_clean, "\n".join(report.lines())
    assert all(report.lengths.values())
    assert report.account.delivered == report.account.expected > 0


def test_incidents_are_within_their_bounds() -> None:
    incidents = list(islice(draw_incidents(2, 5, 20.0), 60))
    assert {incident.trouble for incident in incidents} == set(troubles(()))
    of_workers = list(islice(draw_incidents(2, 5, 20.0, [1, 3]), 60))
    assert {incident.trouble for incident in of_workers} == set(Trouble)
    assert {incident.nodes for incident in of_workers if incident.trouble is Trouble.KILL_WORKER} == {(1,), (3,)}
    assert all(0.0 <= incident.seconds <= 20.0 for incident in incidents)
    assert all(incident.seconds >= 15.0 for incident in incidents if incident.trouble is Trouble.STILL_LONG)
    assert incidents == list(islice(draw_incidents(2, 5, 20.0), 60))
    assert all(set(incident.nodes) <= set(range(5)) for incident in incidents)


async def test_the_log_says_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation_run, "NOTE_SECONDS", 0.0)
    run = FederationRun.__new__(FederationRun)
    notes: list[str] = []
    monkeypatch.setattr(run, "_note", notes.append)
    await run._until(lambda: bool(notes), lambda: "messages: c")
    assert notes[0] == "waits for messages: c"


def test_a_node_is_whole_when_each_of_its_workers_has_said_so_last() -> None:
    said = "warn  federation: the copy of the store on another node is"
    first = (
        f"{said} not whole node=n2 reason=slow worker=1\n{said} whole node=n2 worker=1\n{said} whole node=n3 worker=0\n"
    )
    assert not is_known_as_whole("", 0)
    assert is_known_as_whole(first, len(first))
    assert not is_known_as_whole(first, 0), "it was not just before"
    log = f"{first}{said} not whole node=n2 worker=1\n{said} whole node=n3 worker=0\n"
    assert not is_known_as_whole(log, len(log)), "worker 1 is not"
    assert is_known_as_whole(f"{said} whole node=n2\n", 0)
