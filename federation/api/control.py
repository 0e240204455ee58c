"""The federation plugin as the Membership service sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.server.logging import get_logger
from federation.api.membership import JoinFailed, MemberInfo, MembershipControl
from federation.shell.gossip import JoinError

if TYPE_CHECKING:
    from federation.plugin import FederationPlugin


class PluginControl(MembershipControl):
    """Translates between the service's words and the plugin's. The numbers of MemberStatus are those of the wire.

    What somebody does to the membership stands in the log: an incident often begins with it.
    """

    def __init__(self, plugin: FederationPlugin) -> None:
        self._plugin = plugin
        self._log = get_logger("federation")

    async def join(self, hosts: list[str]) -> None:
        try:
            errors = await self._plugin.join(hosts)
        except JoinError as error:
            self._log.warning("join by the API failed", hosts=hosts, errors=str(error))
            raise JoinFailed(str(error)) from error
        if errors:
            self._log.warning("joined by the API, but not all hosts answered", hosts=hosts, errors=errors)
        else:
            self._log.info("joined by the API", hosts=hosts)

    async def leave(self) -> None:
        if await self._plugin.leave_federation():
            self._log.info("left by the API, retry_join rests until a join")
        else:
            self._log.warning("left by the API without knowing that the others heard it, retry_join rests until a join")

    def force_leave(self, name: str) -> None:
        if not self._plugin.force_leave(name):
            raise KeyError(name)
        self._log.info("made to leave by the API", node=name)

    def members(self) -> list[MemberInfo]:
        return [
            MemberInfo(
                name=member.name,
                addr=f"[{member.ip}]:{member.port}" if ":" in member.ip else f"{member.ip}:{member.port}",
                tags=member.tags,
                status=int(member.status),
            )
            for member in self._plugin.members()
        ]
