"""The plugin `auth` has one authorizer, of the `acl_file` and of the access that tokens give."""

# not a core: reads files
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.auth.acl_authorizer import AclAuthorizer
from broker.auth.acl_rules import AclRules
from broker.auth.files import read_acl_file
from broker.server.logging import get_logger

if TYPE_CHECKING:
    from broker.server.host import Host


class Acl:
    """key   of the setting, for errors
    path  of the file; "" without one: only what tokens say is judged
    """

    def __init__(self, server: Host, key: str, path: str) -> None:
        self.key = key
        self.path = path
        self._server = server
        self._log = get_logger("auth")
        self._authorizer: AclAuthorizer | None = None

    async def load(self) -> None:
        """Read the file, for the first time or again, and judge everything by it. Raises StartError for a file that cannot be
        used; the former rules stay."""
        rules = None
        if self.path:
            found = await asyncio.to_thread(read_acl_file, self.path, self.key)
            for warning in found.warnings:
                self._log.warning(warning, key=self.key, file=self.path)
            rules = found.rules
            self._log.info("access rules read", file=self.path, rules=found.rule_count)
        broker = self._server.broker
        if self._authorizer is None:
            self._authorizer = AclAuthorizer(rules)
            broker.add_authorizer(self._authorizer)
        else:
            self._authorizer.rules = rules
            broker.authorization_changed()

    def current(self) -> AclRules | None:
        """The rules of the file; None without one."""
        return None if self._authorizer is None else self._authorizer.rules

    def stop(self) -> None:
        if self._authorizer is not None:
            self._server.broker.remove_authorizer(self._authorizer)
