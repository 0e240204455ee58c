"""`scripts/chaos federation`: nodes with stores are killed, wiped, stopped, drained and cut off; durable sessions get all that
was acknowledged on any node, wherever their clients are."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

from client_library import missing_library
from federation_evidence import Owners, keeps_nothing, metrics, places
from federation_faults import FAULTS, Scene
from federation_report import FederationReport
from federation_schedule import Incident, Trouble
from ledger import Ledger, Receipts, Unsure, settle, spans
from mosquitto_process import MOSQUITTO_MISSING
from node_process import Node, Nodes
from other_players import MosquittoPublisher, MosquittoSubscriber, PahoPlayer
from players import Player, Publisher, Stage, Subscriber, in_flight, roam
from split_network import SplitNetwork, split_network
from waiting import eventually

NODES: Final = 5
RATE: Final = 12.0  # messages a second of each publisher
ROAMERS: Final = 4
NAPPERS: Final = 3
ROAMING_PUBLISHERS: Final = 2
HEAL_SECONDS_MAX: Final = 180.0
NOTE_SECONDS: Final = 20.0  # the log says what is waited for
CUTS: Final = frozenset((Trouble.CUT, Trouble.STILL, Trouble.STILL_LONG, Trouble.KILL_BESIDE_STILL))
CONFIG: Final[dict[str, Any]] = {
    "mqtt": {
        "session_expiry": "2h",
        "max_queued_messages": 1_000_000,
        "max_queued_bytes": "1GiB",
        "publisher_hold_max": "5m",
    },
    "log": {"clients": False},
    "plugins": {
        "prometheus": {"listen_address": "127.0.0.1:0"},
    },
    "plugin_order": ["admin", "federation", "prometheus"],
}


AnySubscriber = Subscriber | PahoPlayer | MosquittoSubscriber
AnyPublisher = Publisher | PahoPlayer | MosquittoPublisher


class FederationRun(Stage, Scene):
    def __init__(
        self,
        directory: Path,
        say: Callable[[str], None],
        replication: dict[str, Any],
        seed: int = 1,
        nodes: int = NODES,
        workers: int = 1,
    ) -> None:
        """replication: settings of all nodes. workers: of every second node."""
        self.say = say
        self.ledger = Ledger()
        self.wiped = set()
        self.spared = 0
        self._made = Nodes(directory)
        self.with_workers = range(0, nodes, 2) if workers > 1 else range(0)
        for number in range(1, nodes + 1):
            own = {"data_dir": str(directory / f"data{number}")}
            of_workers: dict[str, Any] = {}
            if number - 1 in self.with_workers:
                metrics_address = f"127.0.0.1:{self._made.free_port()}"
                of_workers = {"workers": workers, "plugins": {"prometheus": {"listen_address": metrics_address}}}
            node = self._made.make_federated([], {**CONFIG, **own, **of_workers})
            node.config["plugins"]["federation"]["replication"] = replication
            node.config["plugins"]["federation"]["server_reference"] = f"127.0.0.1:{node.port}"
        self.nodes = self._made.all
        self._names = {node.port: node.name for node in self.nodes}
        self._several = {self.nodes[number].name for number in self.with_workers}
        self._seed = seed
        self._log = (directory / "clients.log").open("w")
        self._number = 0  # of the newest incident
        self._begins: Counter[Trouble | None] = Counter()
        self._incident: Incident | None = None
        self._hit: frozenset[str] = frozenset()
        self._complete: list[Receipts] = []
        self._left: dict[str, set[asyncio.Task[None]]] = {}
        self._at_heal: dict[str, int] = {}
        self._adopted: dict[tuple[str, int], float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._cast()

    def _cast(self) -> None:
        ports = [node.port for node in self.nodes]
        at_home = [Subscriber(self, node.port, f"subscriber-{node.name}") for node in self.nodes]
        roamers = [Subscriber(self, ports[number % len(ports)], f"roamer-{number}") for number in range(ROAMERS)]
        self._nappers = [Subscriber(self, ports[-number], f"napper-{number}") for number in range(NAPPERS)]
        # QoS 2 has the outbox of its node stored, with all that is of QoS 1 in it: some nodes have none.
        levels = ((1,), (2,), (1, 2))
        loyal = [
            Publisher(self, node.port, f"publisher-{node.name}", levels[number % len(levels)], RATE)
            for number, node in enumerate(self.nodes)
        ]
        roaming = [
            Publisher(self, ports[number], f"roaming-publisher-{number}", (1, 2), RATE)
            for number in range(ROAMING_PUBLISHERS)
        ]
        own_subscribers = [*at_home, *roamers, *self._nappers]
        self._roaming: list[Subscriber | Publisher] = [*roamers, *roaming]
        for client in (*self._roaming, *self._nappers):
            client.others = [port for port in ports if port != client.port]
        self._homes: dict[Subscriber | Publisher, int] = {}
        for stays in (at_home, loyal):
            self._homes.update(zip(stays, ports, strict=True))
        self._own: list[Subscriber | Publisher] = [*own_subscribers, *loyal, *roaming]
        self._subscribers: list[AnySubscriber] = [*own_subscribers]
        self._publishers: list[AnyPublisher] = [*loyal, *roaming]
        self._pahos: list[PahoPlayer] = []
        if missing := missing_library("paho"):
            self.say(f"without paho: {missing}")
        else:
            self._pahos = [PahoPlayer(self, ports[1:] + ports[:1], "paho-v5", 5), PahoPlayer(self, ports, "paho-v3", 4)]
            self._subscribers += self._pahos
            self._publishers.append(PahoPlayer(self, ports[2:] + ports[:2], "paho-publisher", 4, (1, 2), RATE))
        if MOSQUITTO_MISSING:
            self.say("without the clients of mosquitto: they are missing (Debian package mosquitto-clients)")
        else:
            self._subscribers.append(MosquittoSubscriber(self, ports, "mosquitto-v3", 4))
            self._subscribers.append(MosquittoSubscriber(self, ports[3:] + ports[:3], "mosquitto-v5", 5))
            self._publishers.append(MosquittoPublisher(self, ports[4:] + ports[:4], "mosquitto-pub"))
        self._players = [client.player for client in (*self._subscribers, *self._publishers)]

    # --- the run

    async def run(self, incidents: Iterable[Incident], seconds: float) -> FederationReport:
        """Incidents one after the other, until so many seconds are over."""
        report = FederationReport(len(self.nodes))
        report.clients = f"{len(self._subscribers)} durable subscribers, {len(self._publishers)} publishers"
        async with AsyncExitStack() as stack:
            self.network: SplitNetwork = await stack.enter_async_context(split_network(self.nodes))
            stack.push_async_callback(self._close)
            await asyncio.gather(*(node.start() for node in self.nodes))
            await self._made.all_alive(self.nodes)
            await self._play(incidents, seconds, report)
        report.faults += [fault for node in self.nodes for fault in node.unclean]
        return report

    async def _close(self) -> None:
        self.network.heal()
        await self._rest()
        await asyncio.gather(*(client.stop() for client in (*self._subscribers, *self._publishers)))
        self._log.close()
        await asyncio.gather(*(node.finish() for node in self.nodes))

    async def _play(self, incidents: Iterable[Incident], seconds: float, report: FederationReport) -> None:
        for subscriber in self._subscribers:
            await subscriber.begin()
            await asyncio.wait_for(subscriber.subscribed.wait(), HEAL_SECONDS_MAX)
        for publisher in self._publishers:
            await publisher.begin()
        self._move_clients()
        begun = time.monotonic()
        for number, incident in enumerate(incidents, 1):
            if time.monotonic() - begun >= seconds:
                break
            await asyncio.sleep(incident.quiet_seconds)
            hit = [self.nodes[index] for index in incident.nodes]
            names = ", ".join(node.name for node in hit)
            self.say(f"{number}: {incident.trouble} for {incident.seconds:.1f} s ({names}){incident.end}")
            report.lengths[incident.trouble].append(incident.seconds)
            self._number = number
            self._incident, self._hit = incident, frozenset(node.name for node in hit)
            self._mark()
            for subscriber in self._subscribers:
                subscriber.receipts.incident_begins()
            self._note(f"{number}: {incident}")
            await FAULTS[incident.trouble](self, incident, hit)
            healed = time.monotonic()
            self._note("it is over")
            is_healed = await self._healed(report)
            report.heals[incident.trouble].append(time.monotonic() - healed)
            self.say(
                f"   healed in {report.heals[incident.trouble][-1]:.1f} s, {sum(self.ledger.sent.values()):,} published"
            )
            self._is_over()
            if not is_healed:
                break
        report.seconds = time.monotonic() - begun
        await self._end(report)

    def _move_clients(self) -> None:
        ports = [node.port for node in self.nodes]
        moving = [
            *(client.nap(ports, Random(f"{self._seed} {client.client_id}")) for client in self._nappers),
            *(roam(client, ports, Random(f"{self._seed} {client.client_id}")) for client in self._roaming),
            *(paho.roam(Random(f"{self._seed} {paho.player.client_id}")) for paho in self._pahos[1:]),
        ]
        self._tasks = [asyncio.create_task(coroutine) for coroutine in moving]

    async def _rest(self) -> None:
        """Clients move no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what clients and faults ask for

    def served(self, player: Player, port: int | Path, has_session: bool | None) -> None:
        assert isinstance(port, int)
        before, node = player.node, self._names[port]
        player.node = node
        self._is_at(player, datetime.now(UTC))
        if not before:
            return
        player.moves += before != node
        incident = self._incident
        # Of a node with workers nobody knows here which of them it was, and which it is: who connects for each message has
        # moved each time.
        is_elsewhere = before != node or node in self._several
        unsure: Unsure | None = None
        if has_session is False:
            unsure = Unsure.BEGUN
            player.is_moved = True
            self._begins[None if incident is None else incident.trouble] += 1
        if incident is not None:
            if (is_elsewhere and incident.trouble is not Trouble.DRAIN) or node in self.wiped:
                player.is_moved = True
                if player.receipts is not None:
                    player.receipts.is_moving = True
                if has_session is None:
                    unsure = Unsure.BEGUN
            if incident.trouble in CUTS and (before in self._hit) != (node in self._hit):
                player.crossings += 1
                unsure = Unsure.CROSSED
        self._note(
            f"{player.client_id} from {before} to {node}{', without its session' if has_session is False else ''}"
        )
        if unsure is not None:
            if player.receipts is not None:
                player.receipts.unsure = unsure
            for topic in player.topics:
                self.ledger.unsure[topic].update(dict.fromkeys(in_flight(self.ledger, topic), unsure))

    def _note(self, text: str) -> None:
        """For who looks for the cause of a fault."""
        self._log.write(f"{datetime.now(UTC).isoformat()} {text}\n")
        self._log.flush()

    def _mark(self) -> None:
        """An incident begins, or is over."""
        now = datetime.now(UTC)
        for player in self._players:
            self._is_at(player, now)

    def _is_at(self, player: Player, now: datetime) -> None:
        """What the client publishes, and gets, from now on is from and at this place."""
        incident = f"{'after' if self._incident is None else 'in'} incident {self._number}"
        place = f"{player.node} since {now:%H:%M:%S.%f} {incident}"
        if player.receipts is not None:
            player.receipts.is_at(place)
        for topic in player.topics:
            self.ledger.publisher_is(topic, place)

    def client_ids(self) -> list[str]:
        return [player.client_id for player in self._players if player.is_durable]

    def serves_again(self, node: Node) -> None:
        for client, port in self._homes.items():
            if port == node.port:
                client.go(port)

    # --- what is seen

    async def _healed(self, report: FederationReport) -> bool:
        """Whether each client that is not away gets everything that has been acknowledged by now, and has one owner, and
        nothing is on its way to a former one."""
        missing = [
            (client.player, client.receipts.missing(self.ledger)) for client in self._subscribers if client.receipts
        ]
        self._at_heal = dict(self.ledger.sent)
        self._left = {client.client_id: set(client.left) for client in self._own}

        def is_delivered() -> bool:
            for player, lacking in missing:
                for topic in list(lacking):
                    lacking[topic].difference_update(player.came(topic))
                    if not lacking[topic]:
                        del lacking[topic]
            return all(player.is_away or not lacking for player, lacking in missing)

        def are_left() -> bool:
            return all(left.done() for lefts in self._left.values() for left in lefts)

        def waiting_ends() -> list[str]:
            return [client_id for client_id, lefts in self._left.items() if not all(left.done() for left in lefts)]

        owners = Owners(self.nodes, self.client_ids())
        try:
            await self._until(
                is_delivered, lambda: f"messages: {[(who.client_id, what) for who, what in missing if what]}"
            )
            await self._until(owners.look, lambda: f"owners: {owners.wrong()}")
            for node in self.nodes:
                await self._until(partial(keeps_nothing, node), partial("what {} keeps for others".format, node.name))
            await self._until(are_left, lambda: f"ends of sessions: {sorted(waiting_ends())}")
        except AssertionError:
            self._complete = []
            await self._explain(missing, owners, report)
            return False
        for node in self.nodes:
            (adopted,) = await metrics(node, "gmqtt_stores_adopted_total")
            self._adopted[node.name, node.pid] = sum(adopted)
        is_delivered()  # a client that was away may be back, and lack what waited for it
        self._complete = [
            player.receipts for player, lacking in missing if player.receipts and not player.is_away and not lacking
        ]
        return True

    async def _until(
        self, condition: Callable[[], bool] | Callable[[], Awaitable[bool]], lacking: Callable[[], str]
    ) -> None:
        """As eventually, and notes from time to time what is lacking."""
        waiting = asyncio.ensure_future(eventually(condition, "", HEAL_SECONDS_MAX))
        try:
            while not (await asyncio.wait([waiting], timeout=NOTE_SECONDS))[0]:
                self._note(f"waits for {lacking():.500}")
            await waiting
        finally:
            waiting.cancel()

    async def _explain(
        self, missing: list[tuple[Player, dict[str, set[int]]]], owners: Owners, report: FederationReport
    ) -> None:
        for player, lacking in missing:
            if lacking and not player.is_away:
                text = "; ".join(f"{topic}: {spans(numbers)}" for topic, numbers in list(lacking.items())[:3])
                report.faults.append(f"{player.client_id} at {player.node} lacks {text}")
                report.faults.append(await places(self.nodes, player.client_id))
        if not await owners.look():
            report.faults += owners.wrong()
            report.two_owners += len(owners.wrong())
        for client_id, lefts in self._left.items():
            if not all(left.done() for left in lefts):
                report.two_owners += 1
                report.faults.append(f"{client_id}: a connection to its former node was not closed")

    def _is_over(self) -> None:
        """Nothing goes wrong, and what did is over for all who are not away."""
        for player in self._players:
            for topic in player.topics if player.is_moved else ():
                self.ledger.publisher_moved(topic, self.ledger.sent[topic])
            player.is_moved = False
        self.ledger.delivered.update(self._at_heal)
        for receipts in self._complete:
            receipts.is_well(self._at_heal, self.ledger.sent)
        self._incident, self._hit = None, frozenset()
        self.wiped.clear()
        self._mark()

    async def _end(self, report: FederationReport) -> None:
        await self._rest()
        is_well = not report.faults
        for client in self._nappers:
            client.come_back(client.port)
        for publisher in self._publishers:
            publisher.enough()
        if is_well:
            for publisher in self._publishers:
                await asyncio.wait_for(publisher.done.wait(), HEAL_SECONDS_MAX)
            await self._healed(report)
        report.account = settle(self.ledger, [client.receipts for client in self._subscribers])
        report.moves = sum(player.moves for player in self._players)
        report.crossings = sum(player.crossings for player in self._players)
        report.begins = sum(self._begins.values())
        self.say(f"clients let in without their session: {dict(self._begins)}")
        report.adopted = round(sum(self._adopted.values()))
        report.spared = self.spared
        report.faults += [fault for client in self._own for fault in client.faults]
