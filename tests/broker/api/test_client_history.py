"""What became of clients: bounded, by client id, the newest first; over REST with real connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.api import client_history
from broker.api.client_history import ClientHistory

CLIENTS = st.sampled_from(["a", "b", "", "c/d"])
KINDS = st.sampled_from(["connected", "disconnected", "refused", "session_ended"])


def tell(history: ClientHistory, client_id: str, kind: str, text: str) -> None:
    if kind == "connected":
        history.client_connected(client_id, "192.0.2.1:1", 5, text, 60)
    elif kind == "disconnected":
        history.client_disconnected(client_id, "192.0.2.1:1", text)
    elif kind == "refused":
        history.client_refused(client_id, "192.0.2.1:1", "u", text)
    else:
        history.session_terminated(client_id, text)


@given(st.lists(st.tuples(CLIENTS, KINDS, st.text(max_size=5)), max_size=30))
def test_each_client_has_its_events(events: list[tuple[str, str, str]]) -> None:
    clock = iter(range(1000))
    history = ClientHistory(lambda: float(next(clock)))
    for event in events:
        tell(history, *event)
    for client_id in ("a", "b", "c/d"):
        expected = [kind for told, kind, _ in events if told == client_id]
        found = history.of(client_id)
        assert [event.kind for event in reversed(found)] == expected
        assert [event.at for event in found] == sorted((event.at for event in found), reverse=True)
    assert all(event.kind != "refused" for event in history.of(""))


def test_what_is_kept_is_bounded() -> None:
    history = ClientHistory(lambda: 0.0)
    tell(history, "old", "connected", "")
    for number in range(client_history.EVENTS_MAX):
        tell(history, f"c{number}", "disconnected", "x" * 1000)
    assert history.of("old") == []
    for number in range(200):
        tell(history, f"{number:05}" * 13_000, "refused", "")
    assert history.of("c1") == []
    assert len(history.of("00199" * 13_000)) == 1
    assert history._bytes <= client_history.BYTES_MAX
    history = ClientHistory(lambda: 0.0)
    tell(history, "c0", "disconnected", "x" * 1000)
    assert len(history.of("c0")[0].text) == client_history.TEXT_MAX


async def test_over_rest(node: Any, rest: Any, make_world: Callable[..., Any]) -> None:
    await node.admin.start()
    client = node.world.connect("c/d")
    node.world.now += 5.0
    node.broker.close_client("c/d", True, node.now())
    node.flush_soon()
    answer = await rest.get("/v1/clients/c%2Fd/history")
    kinds = [event["kind"] for event in answer["events"]]
    assert kinds[-1] == "connected"
    assert {"disconnected", "session_ended"} <= set(kinds)
    assert answer["events"][-1]["text"].startswith("MQTT")
    assert client is not None
    assert await rest.get("/v1/clients/nobody/history") == {"events": []}
    await node.admin.stop()
