"""Shared groups over nodes whose members come and go, and the oracle: one group, one copy (decision 14).

Every message of QoS 1 or 2 that was acknowledged comes to each group. It comes once, a member's repetition after the end of its
connection aside, unless a node was killed or cut off in between. A QoS 2 message that was sent to one member goes to no other.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from broker.codec.packets import Will
from broker.counters import DROP_GROUP_GONE
from broker.message import NEVER
from simulator.federation import RETURN_LIMIT, ROUGH, Federation
from simulator.group_clients import Copy, Member, Published, Source
from simulator.node_store import Disk
from simulator.world import Host

GROUPS: Final = ("$share/g/j/#", "$share/h/j/#")
TOPICS: Final = ("j/0", "j/1", "j/2")
PLAIN: Final = "j/0"
MEMBERS: Final = 3  # of each node
ANSWERS_MAX: Final = 30
ONLINE_LIMIT: Final = 60.0
CHOOSER_SECONDS: Final = 90.0
"""So long after a message a kill of the node where it was published may cost the copy that went to a member there."""
ROUND_SECONDS: Final = 2.0
ROUNDS: Final = 6  # of messages to all members of all groups, where the choice is looked at


class Groups:
    """Nodes of the numbers `plain` have no store; those of `older` do not know of copies. Each node has members, some with
    ordinary subscriptions beside; the first one of n1 stays in both groups for ever."""

    def __init__(
        self,
        seed: int,
        count: int,
        plain: frozenset[int] = frozenset(),
        older: frozenset[int] = frozenset(),
        **options: Any,
    ) -> None:
        own: list[dict[str, Any]] = []
        for number in range(1, count + 1):
            one: dict[str, Any] = {"disk": None if number in plain else Disk()}
            if number in older:
                one["extensions"] = "direct2,direct3"
            own.append(one)
        self.federation = Federation(seed, count, [1, 2], ROUGH, each=own, **options)
        self.world = self.federation.world
        self.rng = self.federation.rng
        self.published: list[Published] = []
        self.faults: list[tuple[float, float]] = []
        self.kills: list[tuple[str, float]] = []
        self.gone = 0  # drops of processes that have ended
        self._has_disk = {host: own[at]["disk"] is not None for at, host in enumerate(self.federation.hosts)}
        self.members = {host: self._new_members(host) for host in self.federation.hosts}
        self.sources = {host: Source(f"source of {host.name}") for host in self.federation.hosts}
        self.anchor = self.members[self.federation.hosts[0]][0]
        self.until_online()
        self.federation.until_agreement(RETURN_LIMIT, "the subscriptions")

    def _new_members(self, host: Host) -> list[Member]:
        found: list[Member] = []
        for number in range(MEMBERS):
            is_anchor = number == 0 and host is self.federation.hosts[0]
            names = list(GROUPS) if is_anchor else self.rng.sample(GROUPS, self.rng.choice((1, 1, 2)))
            if not is_anchor and self.rng.random() < 0.3:
                names.append(PLAIN)
            filters = {name: self.rng.choice((1, 1, 1, 2)) for name in names}
            is_durable = is_anchor or self.rng.random() < 0.4
            found.append(Member(f"member {number} of {host.name}", filters, is_durable, self.rng.choice((2, 5, 100))))
        return found

    # --- what happens

    @property
    def awake(self) -> list[Host]:
        return [host for host in self.federation.running if not host.is_still]

    def kill(self, host: Host) -> None:
        if host.process is None:
            return
        self.kills.append((self.federation.node(host).name, self.world.now))
        self.faults.append((self.world.now, self.world.now))
        self.gone += self._dropped(host)
        host.crash()
        self.sources[host].is_open = False
        for member in self.members[host]:
            member.lose()
            if not self._has_disk[host]:
                member.forget_session()

    def cut(self, hosts: list[Host], seconds: float, rate: float) -> None:
        began = self.world.now
        self.world.partition(hosts)
        self.run(seconds, rate)
        self.world.heal()
        self.faults.append((began, self.world.now))

    def run(self, seconds: float, rate: float) -> None:
        end = self.world.now + seconds
        while self.world.now < end:
            step = min(0.02 + self.rng.random() * 0.3, end - self.world.now)
            self.federation.run(step)
            for host in self.awake:
                for _ in range(int(rate * step / len(self.awake) + self.rng.random())):
                    self._publish(host)
                for member in self.members[host]:
                    host.settle()  # a member takes what was sent before it goes
                    self._acts(host, member)
                host.settle()

    def _publish(self, host: Host) -> None:
        source = self.sources[host]
        if not source.is_open:
            self._join(host, source)
            source.connect(self.federation.node(host).broker, self.world.now)
        if source.has_room() and self._has_heard(host):
            message = self._new_message(host, self.rng.choice(TOPICS), self.rng.choice((1, 1, 2)))
            source.publish(message, self.rng.random() < 0.1, self.world.now)

    def _has_heard(self, host: Host) -> bool:
        """Whether the node may acknowledge: one without a store does before it knows who wants the message."""
        by_name = self.federation.node(host).node.receivers.by_name
        others = len(self.federation.hosts) - 1
        heard = [receiver for receiver in by_name.values() if receiver.has_interest]
        return self._has_disk[host] or host.life == 1 or len(heard) == others

    def _new_message(self, host: Host, topic: str, qos: int) -> Published:
        payload = b"%d" % len(self.published)
        message = Published(payload, topic, qos, self.federation.node(host).name, self.world.now)
        self.published.append(message)
        return message

    def _join(self, host: Host, client: Member | Source) -> None:
        clients = self.federation.node(host).clients
        if client not in clients:
            clients.append(client)

    def _connect(self, host: Host, member: Member) -> None:
        self._join(host, member)
        will = None
        if self.rng.random() < 0.3:
            member.will = self._new_message(host, "j/w", 1)
            will = Will(b"j/w", member.will.payload, 1, self.rng.random() < 0.2)
        else:
            member.will = None
        member.connect(self.federation.node(host).broker, will, self.world.now)

    def _acts(self, host: Host, member: Member) -> None:
        now = self.world.now
        chance = self.rng.random()
        if not member.is_open:
            if chance < 0.3:
                self._connect(host, member)
        elif chance < 0.015:
            is_clean = chance < 0.007
            if not is_clean and member.is_accepted and member.will is not None and self._has_heard(host):
                member.will.at = member.will.acknowledged_at = now
            member.disconnect(is_clean, now)
        elif chance < 0.03 and member is not self.anchor:
            if member.granted:
                member.unsubscribe(self.rng.choice(sorted(member.granted)), now)
        elif chance < 0.1:
            member.subscribe_again(now)
        else:
            member.answer(self.rng.randrange(ANSWERS_MAX), now)

    # --- the oracle

    def until_online(self) -> None:
        def is_done() -> bool:
            done = True
            for host in self.awake:
                for member in self.members[host]:
                    if not member.is_open:
                        self._connect(host, member)
                    member.subscribe_again(self.world.now)
                    member.answer(1000, self.world.now)
                    done = done and member.is_done
                host.settle()
            return done

        self.world.run_until(is_done, ONLINE_LIMIT, "all members are online and done")

    def check(self) -> None:
        """Everything works again: each group has got its copies."""
        self.world.heal()
        for host in self.federation.hosts:
            if host.process is None:
                host.start()
        still = max(host.still_until for host in self.federation.hosts)
        if still > self.world.now:
            self.federation.run(still - self.world.now)
        self.until_online()
        self.federation.until_agreement(RETURN_LIMIT, "the faults")
        self._until_right()

    def _until_right(self) -> None:
        def found() -> str:
            self.until_online()
            return self.difference()

        self.federation.until_nothing_differs(found, RETURN_LIMIT, ROUND_SECONDS)

    def check_strategy(self, strategy: str) -> None:
        """Everybody is online, nothing is in flight, and the nodes know of each other's members: each node publishes, and those
        get the messages who should."""
        self.federation.until_nothing_differs(self._miscounted, RETURN_LIMIT, ROUND_SECONDS)
        before = len(self.published)
        everybody = [member for members in self.members.values() for member in members]
        for host in self.federation.hosts:
            source = self.sources[host]
            if not source.is_open:
                self._join(host, source)
                source.connect(self.federation.node(host).broker, self.world.now)
            for number in range(ROUNDS * len(everybody)):
                source.publish(self._new_message(host, f"j/s/{number}", 1), False, self.world.now)
                self.until_online()
        self._until_right()
        for group in GROUPS:
            self._check_strategy(strategy, group, self.published[before:])

    def _check_strategy(self, strategy: str, group: str, published: list[Published]) -> None:
        takers = {
            copy.payload: member.client_id
            for members in self.members.values()
            for member in members
            for copy in member.copies
            if copy.topic_filter == group
        }
        joined = sum(group in member.filters for members in self.members.values() for member in members)
        chosen: dict[str, set[str]] = {}
        for message in published:
            if strategy == "hash_topic":
                chosen.setdefault(message.topic, set()).add(takers[message.payload])
            elif strategy == "hash_clientid":
                chosen.setdefault(message.node, set()).add(takers[message.payload])
        assert all(len(names) == 1 for names in chosen.values()), f"{group}: {chosen}"
        if strategy == "hash_topic":
            assert joined == 1 or len(set(map(str, chosen.values()))) > 1, f"{group}: one of {joined} has all topics"
        elif strategy == "round_robin":
            for host in self.federation.hosts:
                name = self.federation.node(host).name
                shares = Counter(takers[message.payload] for message in published if message.node == name)
                fair = sum(shares.values()) / joined  # the rounds before may have ended anywhere
                is_fair = (
                    len(shares) == joined and fair / 2 <= min(shares.values()) and max(shares.values()) <= 2 * fair
                )
                assert is_fair, f"{group}: {joined} members got {dict(shares)} of {name}"

    def _miscounted(self) -> str:
        """The first node that knows another number of members of a group than there are, "" for none."""
        for group in GROUPS:
            _, share_name, topic_filter = group.split("/", 2)
            for viewer in self.federation.hosts:
                tree = self.federation.node(viewer).node.tree
                route = tree.route(TOPICS[0].encode())
                for found in [] if route is None else route.groups:
                    if (found.share_name, found.topic_filter) != (share_name.encode(), topic_filter.encode()):
                        continue
                    for at, peer in enumerate(found.peers):
                        host = next(
                            host for host in self.federation.hosts if self.federation.node(host).name == peer.name
                        )
                        count = sum(group in member.filters for member in self.members[host])
                        if found.members_at(at) != count:
                            return (
                                f"{viewer.name}: {group} has {found.members_at(at)} members on {peer.name}, not {count}"
                            )
        return ""

    def difference(self) -> str:
        """The first copy that is missing or too many, "" for none."""
        copies: dict[tuple[str, bytes], list[Copy]] = {}
        for members in self.members.values():
            for member in members:
                for copy in member.copies:
                    copies.setdefault((copy.topic_filter, copy.payload), []).append(copy)
        for message in self.published:
            if message.acknowledged_at == NEVER:
                continue
            for group in GROUPS:
                found = self._fault(message, group, copies.get((group, message.payload), []))
                if found:
                    return found
        gone = self.gone + sum(self._dropped(host) for host in self.federation.running)
        if gone and not self.faults:
            return f"{gone} messages had no member to go to"
        return self._waiting()

    def _fault(self, message: Published, group: str, copies: list[Copy]) -> str:
        ended = [copy for copy in copies if copy.is_ended]
        begun = [copy for copy in copies if not copy.is_ended and copy.qos == 2]
        of = f"{group}: {message.payload!r} of QoS {message.qos}, published on {message.node} at {message.at:.3f} s"
        if not ended and not begun:
            if self._was_killed(message) or (message.qos == 2 and self._had_fault(message.at, self.world.now)):
                return ""
            return f"{of} has no copy"
        last = max(copy.at for copy in (*ended, *begun))
        if len(ended) + len(begun) > 1 and not self._had_fault(message.at, last):
            return f"{of} has {len(ended)} copies, and {len(begun)} of QoS 2 that had begun"
        return ""

    def _was_killed(self, message: Published) -> bool:
        """Whether the node that chose was killed, with members that it had chosen there."""
        return any(name == message.node and 0 <= at - message.at < CHOOSER_SECONDS for name, at in self.kills)

    def _had_fault(self, begin: float, end: float) -> bool:
        return any(ended >= begin - ROUND_SECONDS and began <= end for began, ended in self.faults)

    def _dropped(self, host: Host) -> int:
        return self.federation.node(host).broker.counters.messages_dropped[DROP_GROUP_GONE]

    def _waiting(self) -> str:
        kept: Counter[str] = Counter()
        for host in self.federation.running:
            for name, sender in self.federation.node(host).node.senders.items():
                kept[f"{host.name} for {name}"] += len(sender.kept) + sender.outbox.size
                if sender.kept_bytes < 0 or (not sender.kept and sender.kept_bytes):
                    return f"{host.name} counts {sender.kept_bytes} bytes of {len(sender.kept)} copies"
        left = +kept
        return f"copies or events wait: {dict(left)}" if left else ""
