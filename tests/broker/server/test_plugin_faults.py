"""A plugin that raises is logged with its traceback, and not for each message."""

from __future__ import annotations

import io
import json

from broker.server.bounded_log import QUIET_SECONDS, LoggedFaults


def test_a_fault_is_logged_once_a_minute_for_each_call(json_log: io.StringIO) -> None:
    now = 0.0
    faults = LoggedFaults(lambda: now)
    for _ in range(3):
        faults.plugin_failed("Authorizer.may_read", KeyError("rule"))
    faults.plugin_failed("Authorizer.may_publish", KeyError("other"))
    now = QUIET_SECONDS
    faults.plugin_failed("Authorizer.may_read", KeyError("rule"))
    lines = [json.loads(line) for line in json_log.getvalue().splitlines()]
    assert [(line["call"], line.get("left_out_before")) for line in lines] == [
        ("Authorizer.may_read", None),
        ("Authorizer.may_publish", None),
        ("Authorizer.may_read", 2),
    ]
    assert all("KeyError" in line["exception"] for line in lines)
