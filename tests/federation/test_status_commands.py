"""What `gmqttctl status --wait` and `gmqttctl upgrade` wait for."""

from __future__ import annotations

from typing import Any

import pytest

from federation import status_commands, upgrade_command
from federation.status_commands import until_well
from federation.upgrade_command import Upgrade, UpgradePlan
from gmqttctl.connection import Connection
from gmqttctl.errors import NoAnswer, NotNow
from wording import check_each_named

AWAY = [NotNow("n1", "not now: the federation is not running"), NoAnswer("n1", "no answer: Connection refused")]


@pytest.mark.interpreted
@pytest.mark.parametrize("fault", AWAY)
def test_a_node_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    monkeypatch.setattr(status_commands, "LOOK_SECONDS", 0.0)
    answers: list[Exception | list[str]] = [fault, ["one copy is not whole"], fault, []]

    def look() -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert until_well(look, 60.0) == []
    assert answers == []
    answers = [fault]
    with pytest.raises(type(fault)):
        until_well(look, None)


@pytest.mark.interpreted
@pytest.mark.parametrize("fault", AWAY)
def test_an_upgrade_waits_for_a_node_that_starts(monkeypatch: pytest.MonkeyPatch, fault: NoAnswer | NotNow) -> None:
    """A node that was restarted answers before its federation runs."""

    def ask(calls: Any) -> dict[str, Any]:
        raise fault

    monkeypatch.setattr(upgrade_command, "ask", ask)
    said: list[str] = []
    upgrade = Upgrade(Connection(("127.0.0.1:1",)), lambda name, server: None, UpgradePlan(1000, 60.0), said.append)
    check_each_named(upgrade._wrong("127.0.0.1:1", 2), [[fault.text]])
