"""AccessService: the rules as their file has them, in pages, and who is locked out."""

from __future__ import annotations

from pathlib import Path

from google.protobuf.empty_pb2 import Empty

from broker.auth.access_service import LOCKED_OUT_MAX, AccessService
from broker.auth.acl_rules import AclRules
from broker.auth.failed_logins import FailedLogins
from broker.auth.files import read_acl_file
from broker.auth.pb.account_pb2 import ListRulesRequest, ListRulesResponse

RULES = """\
topic read $SYS/#
user alice
topic readwrite home/alice/#
topic deny home/alice/safe
user bob
topic write bob
pattern read own/%c
"""


def service(rules: AclRules | None, failed: FailedLogins | None = None) -> AccessService:
    return AccessService(failed or FailedLogins(1, 0), lambda: rules, lambda: 1000.0)


async def rules_of(rules: AclRules | None, page: int, size: int) -> ListRulesResponse:
    return await service(rules).ListRules(ListRulesRequest(page=page, page_size=size), None)


async def test_rules_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "acl"
    path.write_text(RULES)
    rules = read_acl_file(str(path), "acl_file").rules
    whole = await rules_of(rules, 1, 1000)
    assert [(rule.kind, rule.username, rule.access, rule.topic_filter) for rule in whole.rules] == [
        ("topic", "", "read", "$SYS/#"),
        ("topic", "alice", "readwrite", "home/alice/#"),
        ("topic", "alice", "deny", "home/alice/safe"),
        ("topic", "bob", "write", "bob"),
        ("pattern", "", "read", "own/%c"),
    ]
    pages = [await rules_of(rules, page, 2) for page in (1, 2, 3, 4)]
    assert [rule for page in pages for rule in page.rules] == list(whole.rules)
    assert {page.total_count for page in [*pages, whole]} == {5}
    assert await rules_of(None, 1, 10) == ListRulesResponse()


async def test_those_who_are_locked_out_are_bounded() -> None:
    failed = FailedLogins(1, 0)
    for number in range(LOCKED_OUT_MAX + 5):
        failed.failed("192.0.2.1", f"user {number}", 1000.0)
    found = (await service(None, failed).ListLockedOut(Empty(), None)).locked_out
    assert len(found) == LOCKED_OUT_MAX
    assert (found[0].address, found[0].username) == ("192.0.2.1", f"user {LOCKED_OUT_MAX + 4}")  # the last one first
    assert found[0].seconds > 0
