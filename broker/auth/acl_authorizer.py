"""The authorizer of the rules in an `acl_file`, and of what a client's token says about topics."""

from __future__ import annotations

from broker.auth.acl_rules import DENIED, PUBLISH, READ, AclRules, Rule
from broker.authorization import (
    ALLOW,
    DENY,
    NO_OPINION,
    Authorizer,
    ClientIdentity,
    TopicAccess,
    Verdict,
)


class AclAuthorizer(Authorizer):
    """rules  of the acl_file; None without a file. Whoever replaces them calls `Broker.authorization_changed`.

    What a token says is the whole of what its client may do; the file can take from that, by `deny`, and adds nothing. For
    clients whose credentials say nothing about topics the file decides; without a file they may do everything.
    """

    def __init__(self, rules: AclRules | None) -> None:
        self.rules = rules

    def may_publish(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return self._judge(client, topic, PUBLISH)

    def may_read(self, client: ClientIdentity, topic: bytes) -> Verdict:
        return self._judge(client, topic, READ)

    def may_subscribe(self, client: ClientIdentity, share_name: bytes, topic_filter: bytes) -> Verdict:
        rules = self.rules if client.access is None else _rules_of(client, client.access)
        if rules is None or rules.may_read_any(topic_filter, client.username, client.client_id):
            return ALLOW
        return NO_OPINION if client.access is None else DENY

    def _judge(self, client: ClientIdentity, topic: bytes, wanted: int) -> Verdict:
        rules = self.rules
        verdict = ALLOW
        if rules is not None:
            verdict = rules.judge(topic, wanted, client.username, client.client_id)
        if client.access is None or verdict is DENY:
            return verdict
        of_token = _rules_of(client, client.access).judge(topic, wanted, client.username, client.client_id)
        return ALLOW if of_token is ALLOW else DENY


def _rules_of(client: ClientIdentity, access: tuple[TopicAccess, ...]) -> AclRules:
    """The rules of a client's credentials, made once for each identity."""
    kept = client.kept
    if isinstance(kept, AclRules):
        return kept
    rules: list[Rule] = []
    for entry in access:
        gives = (READ if entry.subscribe else DENIED) | (PUBLISH if entry.publish else DENIED)
        if gives != DENIED:
            rules.append(Rule(entry.pattern, gives))
    made = AclRules({}, rules)
    client.kept = made
    return made
