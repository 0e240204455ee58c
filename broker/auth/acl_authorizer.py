"""The authorizer judges by the rules of an `acl_file` and by the access that a client's token gives."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

from broker.auth.acl_filters import DENIED, PUBLISH, READ, Rule
from broker.auth.acl_rules import AclRules
from broker.authorization import (
    ALLOW,
    DENY,
    NO_OPINION,
    Authorizer,
    ClientIdentity,
    TopicAccess,
    Verdict,
)

SHARED_MAX: Final = 1_000  # rules of tokens that are kept for the next client; a full table is cleared


class AclAuthorizer(Authorizer):
    """rules  of the acl_file; None without a file. Whoever replaces them calls `Broker.authorization_changed`.

    What a token says is the whole of what its client may do; the file can take from that, by `deny`, and adds nothing. For
    clients whose credentials say nothing about topics the file decides; without a file they may do everything.
    """

    def __init__(self, rules: AclRules | None) -> None:
        self.rules = rules
        self._shared: dict[tuple[TopicAccess, ...], AclRules] = {}
        self._steps = 0

    def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return self._judge(client, topic, PUBLISH)

    def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return self._judge(client, topic, READ)

    def may_subscribe(self, client: ClientIdentity, share_name: bytes, topic_filter: bytes) -> Verdict:
        rules = self.rules if client.access is None else self._rules_of(client, client.access)
        if rules is None:
            return ALLOW
        is_readable = rules.may_read_any(topic_filter, client.username, client.client_id)
        self._steps += rules.take_steps(client.username)
        if is_readable:
            return ALLOW
        return NO_OPINION if client.access is None else DENY

    def reason(self, client: ClientIdentity, topic: bytes, publishes: bool) -> str:
        wanted = PUBLISH if publishes else READ
        rules = self.rules
        of_file = "" if rules is None else rules.rule_for(topic, wanted, client.username, client.client_id)
        if client.access is None:
            return f"acl_file: {of_file}" if of_file else "there is no acl_file"
        if rules is not None and rules.judge(topic, wanted, client.username, client.client_id) is DENY:
            return f"acl_file: {of_file}"
        of_token = self._rules_of(client, client.access).rule_for(topic, wanted, client.username, client.client_id)
        return f"the client's token: {of_token or 'nothing of the topic'}"

    def take_steps(self) -> int:
        steps = self._steps
        self._steps = 0
        return steps

    def _judge(self, client: ClientIdentity, topic: bytes, wanted: int) -> Verdict:
        rules = self.rules
        verdict = ALLOW
        if rules is not None:
            verdict = rules.judge(topic, wanted, client.username, client.client_id)
            self._steps += rules.take_steps(client.username)
        if client.access is None or verdict is DENY:
            return verdict
        rules = self._rules_of(client, client.access)
        of_token = rules.judge(topic, wanted, client.username, client.client_id)
        self._steps += rules.take_steps(client.username)
        return ALLOW if of_token is ALLOW else DENY

    def _rules_of(self, client: ClientIdentity, access: tuple[TopicAccess, ...]) -> AclRules:
        """Return the rules of a client's credentials. Clients whose tokens say the same share them."""
        kept = client.kept
        if isinstance(kept, AclRules):
            return kept
        made = self._shared.get(access)
        if made is None:
            made = AclRules({}, _rules(access))
            if len(self._shared) >= SHARED_MAX:
                self._shared.clear()
            self._shared[access] = made
        client.kept = made
        return made


def _rules(access: tuple[TopicAccess, ...]) -> list[Rule]:
    rules: list[Rule] = []
    for entry in access:
        gives = (READ if entry.subscribe else DENIED) | (PUBLISH if entry.publish else DENIED)
        if gives != DENIED:
            rules.append(Rule(entry.pattern, gives))
    return rules
