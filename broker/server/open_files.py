"""The limit of open files: raised as far as the system allows, with a part reserved for other nodes and the API.

Clients are refused, and counted, before they use the reserved part. Event streams, gossip and the API keep working, and
an operator can find the cause.
"""

from __future__ import annotations

import resource
from typing import Final

from broker.config.settings_mqtt import MqttSettings

KEPT_MIN: Final = 32  # open files of a node without clients and other nodes
KEPT_SHARE: Final = 4  # one in four files is reserved for other nodes and the API
KEPT_MAX: Final = 512  # reserved files at most, beside KEPT_MIN
FEW_FILES: Final = 4096  # below it a node without max_connections warns; many systems allow 1024


def raise_file_limit() -> int:
    """Raise the limit as far as the system allows, as the Go broker does. Returns the number of files that may be open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # the limit stays as it is
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft


def connections_max(file_limit: int) -> int:
    return max(1, file_limit - KEPT_MIN - min(KEPT_MAX, file_limit // KEPT_SHARE))


def few_files_warning(mqtt: MqttSettings, file_limit: int, workers: int) -> str:
    """The warning for the operator; empty where there are enough files. `workers` share the connections of the node."""
    possible = connections_max(file_limit)
    advice = "raise the limit (LimitNOFILE of systemd, ulimit -n)"
    if mqtt.max_connections > possible * workers:
        process = "this process" if workers == 1 else f"each of {workers} workers"
        return (
            f"mqtt.max_connections is {mqtt.max_connections}, but {process} may open {file_limit} files, "
            f"which is enough for {possible} clients; {advice}"
        )
    if mqtt.max_connections == 0 and file_limit < FEW_FILES:
        return f"this process may open {file_limit} files, which is enough for {possible} clients; {advice}"
    return ""
