"""A node that is drained before it is stopped: its clients and sessions go to other nodes, at a rate.

It takes no new clients, and closes those that are connected. Their sessions follow them by the claims of the nodes that they
connect to. A session whose client has been away for RETURN_SECONDS goes to a node that a hash names, by the epoch behind its
own: who has claimed the client since stays its home. The node remains a member, and brings to others what is for them.
"""

# compiled with mypyc
from __future__ import annotations

from collections import deque
from typing import Final

from broker.broker import Broker
from broker.codec.reason_codes import USE_ANOTHER_SERVER
from broker.message import NEVER
from broker.ownership import Elsewhere
from broker.session.session import Session
from broker.session.will import StoredWill
from federation.replication.placement import weight
from federation.sessions.home import Home
from federation.sessions.sessions import Sessions
from federation.stream.sender import PeerSender
from federation.tags import REFERENCE_CHARS_MAX, TAG_CLIENTS, TAG_DRAINING

RATE_DEFAULT: Final = 500  # clients and sessions a second
RATE_MAX: Final = 100_000
TICK_SECONDS: Final = 0.05
LOOK_SECONDS: Final = 1.0  # between two looks at all sessions
RETURN_SECONDS: Final = 5.0  # the client of a session that it has closed is expected elsewhere so long
ON_WAY_MAX: Final = 256  # sessions that leave at the same time; policy: the others wait
CLOSED: Final = "this node is drained: connect to another one"
MOVED: Final = "the session is at another node: connect to that one"

SERVING: Final = "serving"
DRAINING: Final = "draining"
DRAINED: Final = "drained"


class DrainRefused(Exception):
    """The node cannot be drained, or a session not be moved."""


class Drain(Elsewhere):
    """state   SERVING, DRAINING, or DRAINED: no client and no session is left, and other nodes have all of them
    since   of the state
    clients_closed, sessions_given  by all drains and moves of this process
    waits   times that sessions waited because ON_WAY_MAX were on their way
    siblings  other workers of this node, which are drained with it
    is_leaving  this worker does not come back: it is drained when no node has anything for it, too
    """

    def __init__(self, broker: Broker, sessions: Sessions, senders: dict[str, PeerSender]) -> None:
        self.state = SERVING
        self.since = broker.now
        self.rate = RATE_DEFAULT
        self.clients_closed = 0
        self.sessions_given = 0
        self.waits = 0
        self.siblings: frozenset[str] = frozenset()
        self.is_leaving = False
        self._broker = broker
        self._sessions = sessions
        self._senders = senders
        self._references: dict[str, str] = {}  # of other members, by name
        self._others: dict[str, None] = {}  # that are drained
        self._queue: deque[str] = deque()  # client ids, in order
        self._staying = 0  # sessions of links, groups and the node itself
        self._staying_clients = 0
        self._marks: list[tuple[PeerSender, int]] | None = None  # what was for others when the last session had left
        self._question = 0  # number of the last one to other workers: whether they have anything for this one
        self._asked: dict[str, int] = {}  # by name: the attempt of the sender by which it was asked
        self._at = NEVER
        self._look_at = 0.0
        self._owed = 0.0  # that the rate has room for
        self._owed_at = 0.0

    # --- members ---

    def member_told(self, name: str, tags: dict[str, str]) -> None:
        """The tags of another member have come."""
        reference = tags.get(TAG_CLIENTS, "")
        self._references.pop(name, None)
        if reference and len(reference) <= REFERENCE_CHARS_MAX and reference.isprintable():
            self._references[name] = reference
        self._others.pop(name, None)
        if TAG_DRAINING in tags:
            self._others[name] = None

    def member_removed(self, name: str) -> None:
        self._references.pop(name, None)
        self._others.pop(name, None)

    def reference(self, client_id: str) -> str:
        name = self._chosen(client_id, [name for name in self._takers() if name in self._references])
        return self._references.get(name, "")

    def _takers(self) -> list[str]:
        """Return the nodes that sessions may go to: from a worker that leaves to other workers, where some take them."""
        takers = [name for name, sender in self._senders.items() if not self._fault(sender)]
        workers = [name for name in takers if self.is_leaving and name in self._sessions.siblings]
        return workers or takers

    def _fault(self, sender: PeerSender) -> str:
        """Return why the node takes no sessions of this one, "" when it does."""
        if sender.name in self.siblings:
            return "is a worker of this node"
        if not sender.is_living:
            return "is away"
        if not sender.moves_sessions:
            return "is a Go broker, or an earlier version, or has the session_scope node"
        if not sender.peer_store_id:
            return "has no store"
        return "is drained, too" if sender.name in self._others else ""

    def _chosen(self, client_id: str, names: list[str]) -> str:
        """Return the first of these nodes in the order for the client, "" for none."""
        chosen = ""
        greatest = -1
        for name in names:
            found = weight(client_id, self._senders[name].peer_store_id)
            if found > greatest:
                greatest = found
                chosen = name
        return chosen

    # --- what an operator asks for ---

    def begin(self, rate: int, now: float) -> None:
        """Drain the node; while it is drained already, at another rate. Raises DrainRefused."""
        if not self._takers():
            faults = [f"{name} {self._fault(sender)}" for name, sender in self._senders.items()]
            text = "; ".join(faults) if faults else "there is no other member"
            raise DrainRefused(f"no other node takes the clients and sessions of this one: {text}")
        unknown = self._unreached() if self.is_leaving else ""
        if unknown:  # it may have something for sessions here
            raise DrainRefused(f"{unknown}, another worker of this node, is not reached")
        self.rate = rate
        if self.state == SERVING:
            self._change(DRAINING, now)
            self._broker.elsewhere = self
            self._owed = 0.0
            self._owed_at = self._at = now
            self._look(now)

    def _unreached(self) -> str:
        """Return another worker of this node that is not reached, "" for none."""
        for name in sorted(self._sessions.siblings):
            sender = self._senders.get(name)
            if sender is None or not sender.reachable:
                return name
        return ""

    def end(self, now: float) -> None:
        """Take clients again. Sessions that leave are not held back."""
        if self.state != SERVING:
            self._change(SERVING, now)
            self._broker.elsewhere = None
            self._queue.clear()
            self._at = NEVER

    def move(self, client_id: str, wanted: str, now: float) -> str:
        """Give one session to another node, and close its client, whatever the state. `wanted` is a node, "" for the one that a
        hash names. Returns its name. Raises DrainRefused."""
        session = self._broker.sessions.get(client_id)
        home = None if session is None else self._home(session)
        if session is None or home is None:
            raise DrainRefused(f'"{client_id}" has no session here that could move')
        if home.is_opening or home.claimant is not None:
            raise DrainRefused(f'the session of "{client_id}" is on its way already')
        takers = [name for name in self._takers() if self._senders[name].reachable]
        if wanted and wanted not in takers:
            sender = self._senders.get(wanted)
            fault = "is no other member" if sender is None else self._fault(sender) or "is not reached"
            raise DrainRefused(f'the node "{wanted}" {fault}; there are {", ".join(takers) or "no others"}')
        name = wanted or self._chosen(client_id, takers)
        if not name:
            raise DrainRefused("no other node takes sessions of this one")
        connection = session.connection
        if connection is not None:
            self.clients_closed += 1
            self._broker.close_connection(connection, USE_ANOTHER_SERVER, MOVED, now)
        if self._broker.sessions.get(client_id) is session:  # it has not ended with the connection
            self._give(home, name, now)
        return name

    def _give(self, home: Home, name: str, now: float) -> None:
        self.sessions_given += 1
        self._sessions.give_on(home, name, (home.counter + 1, self._senders[name].peer_store_id), now)
        self._sessions.active = True

    def _change(self, state: str, now: float) -> None:
        self.state = state
        self.since = now
        self._begin_to_look()

    def _begin_to_look(self) -> None:
        """What was for others, and by others for this node, may not be all."""
        self._marks = None
        self._question += 1
        self._asked.clear()

    def clients_left(self) -> int:
        """Return how many clients are connected, or wait here for their sessions; 0 while the node is not drained."""
        if self.state == SERVING:
            return 0
        counters = self._broker.counters
        connected = counters.clients_connected - counters.clients_disconnected - self._staying_clients
        return max(0, connected) + len(self._sessions.claiming)

    def sessions_left(self) -> int:
        """Return how many sessions are here, or leave and are not yet at another node as a whole; 0 while the node is not
        drained."""
        if self.state == SERVING:
            return 0
        return max(0, len(self._broker.sessions) - self._staying) + self.count_leaving(False)

    def waits_for(self) -> str:
        """Return the node without which it does not go on, "" for none."""
        if self.state == SERVING:
            return ""
        for departing in self._sessions.moves.due:
            sender = self._senders.get(departing.home)
            if not departing.is_handed and sender is not None and not sender.reachable:
                return departing.home
        for sender, mark in self._marks or []:
            if not sender.outbox.is_done(mark):
                return sender.name
        if self.state == DRAINED:
            return ""
        if not self._takers():
            return "any other node that takes sessions"
        return self._brings() if self.is_leaving else ""

    def keeps(self) -> str:
        """Return what only this node has although no session is left that could go, "" for nothing. A node that is stopped and
        started again still has it; one whose store is removed loses it."""
        for client_id, session in self._broker.sessions.items():
            waiting = session.queue_length() + session.inflight_length()
            if waiting and self._home(session) is None:
                return f'{waiting} messages in "{client_id}", a queue of a group or of a link, which stays at its node'
        journal = self._broker.commits.journal
        for content in () if journal is None else journal.kept.values():
            if isinstance(content, StoredWill) and content.pending is not None:
                return f'the will of "{content.session.client_id}", which is not published yet'
        for sender in self._senders.values():
            if not sender.outbox.is_done(sender.mark()):
                return f"messages for {sender.name}"
        home = "" if self._sessions.lost is None else self._sessions.lost.kept_alone()
        return f"the copy of the store of {home}, which is away and not adopted yet" if home else ""

    def count_leaving(self, is_reached: bool) -> int:
        """Return how many sessions leave; is_reached: to nodes that are reached."""
        count = 0
        for departing in self._sessions.moves.due:
            if not departing.is_handed:
                sender = self._senders.get(departing.home)
                if not is_reached or (sender is not None and sender.reachable):
                    count += 1
        return count

    # --- time ---

    def next_timeout(self) -> float:
        """Return when to call handle_timeout; NEVER for not at all."""
        return self._at

    def handle_timeout(self, now: float) -> None:
        """It is that late; harmless when early. After it, the broker may have output, and sessions leave."""
        if now < self._at:
            return
        owed = self._owed + (now - self._owed_at) * self.rate
        self._owed = min(owed, max(1.0, 2.0 * TICK_SECONDS * self.rate))
        self._owed_at = now
        if not self._queue and now >= self._look_at:
            self._look(now)
        self._go_on(now)
        if self.state == DRAINED and self.sessions_left():  # one has come that was on its way here
            self._change(DRAINING, now)
        if self.state == DRAINING and not self._queue:
            self._look_whether_over(now)
        self._at = now + (LOOK_SECONDS if self.state == DRAINED else TICK_SECONDS)

    def _look(self, now: float) -> None:
        """Find the sessions that are to go: of connected clients, the longest connected first, and of those that are away."""
        self._look_at = now + LOOK_SECONDS
        connected: list[tuple[float, str]] = []
        away: list[str] = []
        staying = staying_clients = 0
        for client_id, session in self._broker.sessions.items():
            if self._home(session) is None:
                staying += 1
                staying_clients += session.connection is not None
            elif session.connection is not None:
                connected.append((session.connected_at, client_id))
            elif session.away_from() + RETURN_SECONDS <= now:
                away.append(client_id)
        connected.sort()
        self._staying = staying
        self._staying_clients = staying_clients
        self._queue.extend([client_id for _, client_id in connected])
        self._queue.extend(away)

    def _home(self, session: Session) -> Home | None:
        """The node as the home of the session; None for one that stays: of a link, of a group, of the node itself."""
        return None if session.bridge_end is not None else self._sessions.homes.by_client.get(session.client_id)

    def _go_on(self, now: float) -> None:
        """Close clients and give sessions away, as many as the rate has room for."""
        queue = self._queue
        takers = [name for name in self._takers() if self._senders[name].reachable]
        on_way = self.count_leaving(True)
        while queue and takers and self._owed >= 1.0:
            if on_way >= ON_WAY_MAX:
                self.waits += 1
                return
            client_id = queue.popleft()
            session = self._broker.sessions.get(client_id)
            home = None if session is None else self._home(session)
            if session is None or home is None:
                continue
            connection = session.connection
            if connection is not None:
                self._owed -= 1.0
                self.clients_closed += 1
                self._broker.close_connection(connection, USE_ANOTHER_SERVER, CLOSED, now)
            elif session.away_from() + RETURN_SECONDS <= now and not home.is_opening and home.claimant is None:
                self._owed -= 1.0
                on_way += 1
                self._give(home, self._chosen(client_id, takers), now)

    def _look_whether_over(self, now: float) -> None:
        """Other nodes have all sessions when they have acknowledged what was for them when the last one had left."""
        if self.clients_left() or self.sessions_left():
            self._begin_to_look()
            return
        if self._marks is None:
            self._marks = [(sender, sender.mark()) for sender in self._senders.values() if sender.is_living]
        for sender, mark in self._marks:
            if self._senders.get(sender.name) is sender and not sender.outbox.is_done(mark):
                return
        if self.is_leaving:
            self._ask_workers()
        if not self.is_leaving or not self._brings():
            self._change(DRAINED, now)

    def _brings(self) -> str:
        """Return a node that may have something for this one still, "" for none: one that has not heard of a session that has
        left, or another worker that has not said that it has nothing."""
        for departings in self._sessions.moves.departing.values():
            for departing in departings:
                for name in departing.waiting:
                    return name
                return departing.home
        for name in self._sessions.siblings:
            if self._sessions.answers.passed.get(name) != self._question:
                return name
        return ""

    def _ask_workers(self) -> None:
        """Ask the other workers when all sessions have left; again where the stream has begun anew since."""
        if not self._sessions.moves.departing:
            for name in self._sessions.siblings:
                sender = self._senders.get(name)
                if sender is not None and sender.reachable and self._asked.get(name) != sender.attempt:
                    self._asked[name] = sender.attempt
                    self._sessions.answers.ask(sender, self._question)
