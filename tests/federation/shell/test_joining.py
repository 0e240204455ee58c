"""The log while a member joins: the other node may learn of this one after its first Hello."""

from __future__ import annotations

import pytest

from stations import StartStation, two_nodes


@pytest.mark.parametrize(("joining_seconds", "level"), [(60.0, "debug"), (0.0, "warning")])
@pytest.mark.parametrize("direct", [True, False])
async def test_a_refusal_during_the_join_is_no_warning(
    start_station: StartStation, monkeypatch: pytest.MonkeyPatch, joining_seconds: float, level: str, direct: bool
) -> None:
    monkeypatch.setattr("federation.shell.peer_client.JOINING_SECONDS", joining_seconds)
    n1, n2 = await two_nodes(start_station)
    n1.meet("n2", n2.addr, direct)
    await n1.until(n1.reasons, "a refusal")
    refused = [line for line in n1.log.lines if line[1] == "no event stream to a node"]
    assert {line[0] for line in refused} == {level}
    assert all(line[2]["reason"].endswith("n1 has not yet joined") for line in refused)
    n2.meet("n1", n1.addr, direct)
    await n1.until(lambda: n1.streaming("n2"), "a stream")
