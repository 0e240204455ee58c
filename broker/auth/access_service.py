"""AccessService shows the rules of the `acl_file`, and who is locked out by failed logins."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from google.protobuf.empty_pb2 import Empty

from broker.api.fields import page_bounds
from broker.api.merging import Merged
from broker.api.tokens import Role
from broker.auth.acl_rules import AclRules
from broker.auth.failed_logins import FailedLogins
from broker.auth.pb.account_pb2 import (
    AccessRule,
    ListLockedOutResponse,
    ListRulesRequest,
    ListRulesResponse,
    LockedOut,
)
from broker.auth.pb.account_pb2_grpc import AccessServiceServicer

LOCKED_OUT_MAX: Final = 1000  # entries of an answer


class AccessService(AccessServiceServicer):
    """rules  returns those of the acl_file, None without one
    now    monotonic seconds
    """

    roles: Final = {"ListLockedOut": Role.ADMIN, "ListRules": Role.ADMIN}
    for_workers: Final = {"ListLockedOut": Merged.one_after_the_other}

    def __init__(self, failed: FailedLogins, rules: Callable[[], AclRules | None], now: Callable[[], float]) -> None:
        self._failed = failed
        self._rules = rules
        self._now = now

    async def ListLockedOut(self, request: Empty, context: object) -> ListLockedOutResponse:
        found = islice(self._failed.locked_out(self._now()), LOCKED_OUT_MAX)
        return ListLockedOutResponse(
            locked_out=[LockedOut(address=address, username=name, seconds=seconds) for address, name, seconds in found]
        )

    async def ListRules(self, request: ListRulesRequest, context: object) -> ListRulesResponse:
        rules = self._rules()
        if rules is None:
            return ListRulesResponse()
        offset, size = page_bounds(request.page, request.page_size)
        page = [
            AccessRule(kind=kind, username=username, access=access, topic_filter=topic_filter)
            for kind, username, access, topic_filter in islice(rules.written(), offset, offset + size)
        ]
        return ListRulesResponse(rules=page, total_count=rules.count)
