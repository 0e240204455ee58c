"""How many files this process may open: raised as far as it may be, and kept in part for what is no client.

Where clients take the last file, nothing can be opened any more: no event stream of another node, no gossip, no call of
the API, with which one would look what is wrong. So clients are refused, and counted, before that.
"""

from __future__ import annotations

import dataclasses
import resource
from typing import Final

from broker.config.settings import Settings
from broker.config.settings_mqtt import MqttSettings

KEPT_MIN: Final = 32  # what a node without neighbours has open
KEPT_SHARE: Final = 4  # of what is possible, one in so many is kept for other nodes and the API
KEPT_MAX: Final = 512
FEW_FILES: Final = 4096  # below this a node without max_connections warns: it is the default of many systems


def raise_file_limit() -> int:
    """Take all that the system allows this process, as the Go broker does; how many files it may open then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError):
            pass  # what there is must do
    return 2**31 - 1 if soft == resource.RLIM_INFINITY else soft


def connections_max(file_limit: int) -> int:
    """Most clients for which there are files."""
    return max(1, file_limit - KEPT_MIN - min(KEPT_MAX, file_limit // KEPT_SHARE))


def within_files(settings: Settings, file_limit: int) -> Settings:
    """The settings with a `max_connections` for which there are files."""
    possible = connections_max(file_limit)
    if 0 < settings.mqtt.max_connections <= possible:
        return settings
    return dataclasses.replace(settings, mqtt=dataclasses.replace(settings.mqtt, max_connections=possible))


def few_files_warning(mqtt: MqttSettings, file_limit: int) -> str:
    """What to tell the operator; empty where there are enough files."""
    possible = connections_max(file_limit)
    advice = "raise the limit (LimitNOFILE of systemd, ulimit -n)"
    if mqtt.max_connections > possible:
        return (
            f"mqtt.max_connections is {mqtt.max_connections}, but this process may open {file_limit} files, "
            f"which is enough for {possible} clients; {advice}"
        )
    if mqtt.max_connections == 0 and file_limit < FEW_FILES:
        return f"this process may open {file_limit} files, which is enough for {possible} clients; {advice}"
    return ""
