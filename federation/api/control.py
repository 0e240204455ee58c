"""The federation plugin as the Membership service sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from federation.api.membership import JoinFailed, MemberInfo, MembershipControl
from federation.shell.gossip import JoinError

if TYPE_CHECKING:
    from federation.plugin import FederationPlugin


class PluginControl(MembershipControl):
    """Translates between the service's words and the plugin's. The numbers of MemberStatus are those of the wire."""

    def __init__(self, plugin: FederationPlugin) -> None:
        self._plugin = plugin

    async def join(self, hosts: list[str]) -> None:
        try:
            await self._plugin.join(hosts)
        except JoinError as error:
            raise JoinFailed(str(error)) from error

    async def leave(self) -> None:
        await self._plugin.leave_federation()

    def force_leave(self, name: str) -> None:
        if not self._plugin.force_leave(name):
            raise KeyError(name)

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
