"""Publishes the topics below $SYS every `mqtt.sys_interval`."""

from __future__ import annotations

import asyncio

from broker import __version__
from broker.metrics.sys_topics import SysTopics
from broker.server.host import Host


class SysPublisher:
    """`follow_settings` is called at the start and after a reload."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._topics = SysTopics(f"gmqttd version {__version__}", host.started_at)
        self._timer: asyncio.TimerHandle | None = None

    def follow_settings(self) -> None:
        """Publish at once and then every `sys_interval`; never while that is 0."""
        self.stop()
        if self._host.settings.mqtt.sys_interval:
            self._publish()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _publish(self) -> None:
        host = self._host
        now = host.now()
        totals, present = host.node_numbers()
        for message in self._topics.changed(totals, present, len(host.broker.retained), now):
            host.broker.router.publish_here(message, now)
        host.flush_soon()
        self._timer = host.loop.call_later(host.settings.mqtt.sys_interval, self._publish)
