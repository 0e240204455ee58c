"""mosquitto's acl_file: what each line means, and the fault that a bad line draws."""

from __future__ import annotations

import pytest

from broker.auth import acl_file
from broker.auth.acl_file import AclFault, parse_acl_file
from broker.auth.acl_filters import PUBLISH, READ
from broker.authorization import ALLOW, DENY, NO_OPINION, Verdict

FILE = b"""\
# rules before the first user are for clients without a name
topic read news/#
topic deny news/secret

user alice
topic readwrite home/alice/#
topic write  cmd/with space
topic both
topic deny home/alice/safe
  user   bob the builder\t
topic read $SYS/#\r

pattern readwrite dev/%c/#
pattern read mail/%u
pattern deny dev/+/firmware
user alice
topic read late
"""


@pytest.mark.parametrize(
    ("username", "client_id", "topic", "read", "publish"),
    [
        ("", "c", b"news/x", ALLOW, NO_OPINION),
        ("", "c", b"news/secret", DENY, DENY),
        ("alice", "c", b"news/x", NO_OPINION, NO_OPINION),
        ("alice", "c", b"home/alice/x", ALLOW, ALLOW),
        ("alice", "c", b"home/alice/safe", DENY, DENY),
        ("alice", "c", b"cmd/with space", NO_OPINION, ALLOW),
        ("alice", "c", b"both", ALLOW, ALLOW),
        ("alice", "c", b"late", ALLOW, NO_OPINION),
        ("alice", "c", b"$SYS/x", NO_OPINION, NO_OPINION),
        ("bob the builder", "c", b"$SYS/x", ALLOW, NO_OPINION),
        ("bob the builder", "c", b"mail/bob the builder", ALLOW, NO_OPINION),
        ("", "c", b"mail/", NO_OPINION, NO_OPINION),
        ("bob", "c", b"dev/c/x", ALLOW, ALLOW),
        ("bob", "d", b"dev/c/x", NO_OPINION, NO_OPINION),
        ("bob", "c", b"dev/c/firmware", DENY, DENY),
        ("bob", "+", b"dev/c/x", DENY, DENY),
        ("#", "c", b"mail/x", DENY, DENY),
        ("b", "c/d", b"dev/c/d/x", ALLOW, ALLOW),
    ],
)
def test_the_rules_of_a_file(username: str, client_id: str, topic: bytes, read: Verdict, publish: Verdict) -> None:
    rules = parse_acl_file(FILE).rules
    assert rules.judge(topic, READ, username, client_id) is read
    assert rules.judge(topic, PUBLISH, username, client_id) is publish


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"topics a", "line 2: 'topics' is not `user`, `topic` or `pattern`"),
        (b"topic rw a", "line 2: 'rw' is not `read`, `write`, `readwrite` or `deny`"),
        (b"topic", "line 2: no topic; write `topic [read|write|readwrite|deny] FILTER`"),
        (b"topic read a/#/b", "line 2: topic filter 'a/#/b': # must be the whole last level [MQTT-4.7.1-1]"),
        (b"pattern a%u+/b", "line 2: topic filter 'a%u+/b': + must be a whole level [MQTT-4.7.1-2]"),
        (b"user ", "line 2: `user` without a name; write `user NAME`"),
        (b"topic read \xff", "line 2: not UTF-8; save the file as UTF-8"),
        (b" # indented", "line 2: '#' is not `user`, `topic` or `pattern`"),
        (b"\ttopic a", "line 2: '\\ttopic' is not `user`, `topic` or `pattern`"),
    ],
)
def test_a_bad_line_is_named(line: bytes, fault: str) -> None:
    with pytest.raises(AclFault) as caught:
        parse_acl_file(b"topic read a\n" + line + b"\ntopic b\n")
    assert caught.value.faults == [fault]


def test_all_bad_lines_are_named_up_to_a_bound() -> None:
    with pytest.raises(AclFault) as caught:
        parse_acl_file(b"x\n" * 100)
    assert len(caught.value.faults) == acl_file.FAULTS_SHOWN


def test_an_empty_file_has_no_rules() -> None:
    found = parse_acl_file(b"\n# nothing\n\n")
    assert found.rules.judge(b"a", READ, "", "c") is NO_OPINION
    assert found.warnings == []


def test_a_pattern_without_placeholder_draws_a_warning() -> None:
    found = parse_acl_file(b"pattern read $SYS/#\n")
    assert found.warnings == ["line 1: the pattern has neither %u nor %c, so it is for every client"]
    assert found.rules.judge(b"$SYS/x", READ, "anybody", "c") is ALLOW


def test_a_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_file, "ACL_BYTES_MAX", 10)
    with pytest.raises(AclFault, match="the file has more than 10 bytes"):
        parse_acl_file(b"topic abcdef")
    monkeypatch.setattr(acl_file, "ACL_BYTES_MAX", 1000)
    monkeypatch.setattr(acl_file, "ACL_RULES_MAX", 2)
    with pytest.raises(AclFault, match="line 3: more than 2 rules"):
        parse_acl_file(b"topic a\n" * 3)
