"""Alarms: what an operator has to look at first. Plugins tell it (`Plugin.alarms`), `GET /v1/alarms` has the node's list."""

from __future__ import annotations

from typing import Final, NamedTuple

ERROR: Final = "error"
WARN: Final = "warn"


class Alarm(NamedTuple):
    """level  ERROR: clients or other nodes do not get what they ask for. WARN: they soon may not, or something is slow
    text   a sentence without a full stop, which names what it is about
    """

    level: str
    text: str
