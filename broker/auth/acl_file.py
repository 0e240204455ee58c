"""Read mosquitto's `acl_file`: lines with `user`, `topic` or `pattern`, and comments."""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.auth.acl_filters import DENIED, PUBLISH, READ, Rule
from broker.auth.acl_patterns import CLIENT_ID, USER_NAME
from broker.auth.acl_rules import AclRules
from broker.errors import MqttError
from broker.routing.names import check_topic_filter

ACL_BYTES_MAX: Final = 16 * 2**20  # of a file
ACL_RULES_MAX: Final = 100_000  # of a file
FAULTS_SHOWN: Final = 20  # of one file
NO_USER: Final = ""  # the rules before the first `user` are for clients without a user name

_ACCESS: Final = {"read": READ, "write": PUBLISH, "readwrite": READ | PUBLISH, "deny": DENIED}


class AclFault(Exception):
    """The file cannot be used. `faults` name the line and what would be right."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class AclFile(NamedTuple):
    """rule_count  number of rules
    warnings    name lines whose meaning may surprise
    """

    rules: AclRules
    rule_count: int
    warnings: list[str]


def parse_acl_file(data: bytes) -> AclFile:
    """Return the rules of a file. Raises AclFault."""
    if len(data) > ACL_BYTES_MAX:
        raise AclFault([f"the file has more than {ACL_BYTES_MAX} bytes"])
    users: dict[str, list[Rule]] = {}
    patterns: list[Rule] = []
    faults: list[str] = []
    warnings: list[str] = []
    user = NO_USER
    count = 0
    for number, raw in enumerate(data.split(b"\n"), 1):
        try:
            line = raw.decode().rstrip()
        except UnicodeDecodeError:
            faults.append(f"line {number}: not UTF-8; save the file as UTF-8")
            continue
        if not line.strip(" ") or line.startswith("#"):
            continue
        word, _, rest = line.lstrip(" ").partition(" ")
        rest = rest.strip()
        try:
            if word == "user":
                user = _user_name(rest)
            elif word == "topic":
                users.setdefault(user, []).append(_rule(rest))
            elif word == "pattern":
                rule = _rule(rest)
                patterns.append(rule)
                if USER_NAME not in rule.topic_filter and CLIENT_ID not in rule.topic_filter:
                    warnings.append(f"line {number}: the pattern has neither %u nor %c, so it is for every client")
            else:
                raise ValueError(f"{word[:32]!a} is not `user`, `topic` or `pattern`")
        except ValueError as error:
            faults.append(f"line {number}: {error}")
        count += word != "user"
        if count > ACL_RULES_MAX:
            faults.append(f"line {number}: more than {ACL_RULES_MAX} rules")
        if len(faults) >= FAULTS_SHOWN:
            break
    if faults:
        raise AclFault(faults)
    return AclFile(AclRules(users, patterns), count, warnings)


def _user_name(text: str) -> str:
    if not text:
        raise ValueError("`user` without a name; write `user NAME`")
    return text


def _rule(text: str) -> Rule:
    """`[read|write|readwrite|deny] FILTER`, readwrite without a word."""
    word, separator, rest = text.partition(" ")
    gives = READ | PUBLISH
    topic_filter = text
    if separator:
        if word not in _ACCESS:
            raise ValueError(f"{word[:32]!a} is not `read`, `write`, `readwrite` or `deny`")
        gives = _ACCESS[word]
        topic_filter = rest.strip()
    if not topic_filter:
        raise ValueError("no topic; write `topic [read|write|readwrite|deny] FILTER`")
    try:
        check_topic_filter(topic_filter.encode())
    except MqttError as error:
        raise ValueError(error.text) from None
    return Rule(topic_filter, gives)
