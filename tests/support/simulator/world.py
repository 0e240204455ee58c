"""One heap of (time, order, action) and one seed. The same seed gives the same run, to the byte."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from random import Random
from typing import Final, NoReturn

from federation.gossip.addresses import Address
from federation.gossip.members import FactsPool
from simulator.network import Faults, Stream
from simulator.process import Machine, Process

EPHEMERAL_PORT: Final = 50_000
CONDITION_INTERVAL: Final = 0.1


class Connection(Stream):
    """One end of a connection; `peer` is the other end.

    A host that cannot be reached any more is not noticed: data waits for ever, as with a pulled cable; what follows it on
    that stream waits behind it. A crashed host resets the streams that it had.
    """

    def __init__(self, host: Host, port: int, remote: Address) -> None:
        super().__init__(port, remote)
        self.host = host
        self.host_life = host.life
        self.peer: Connection | None = None
        self.closed = False
        self.opens_at = 0.0
        """Until then the other host takes no connections: what is sent waits."""
        self.cut = False
        """Something sent from this end waits for ever."""
        self.arrives_at = 0.0
        """When the last thing sent from this end arrives: nothing later may overtake it."""

    def write(self, data: bytes) -> None:
        self.host.world.stream_write(self, data)

    def close(self) -> None:
        self.host.world.stream_close(self)


class Host(Machine):
    """A machine with one IP address. It runs a process, or is down."""

    def __init__(self, world: World, name: str, ip: str, make_process: Callable[[Host], Process]) -> None:
        self.world = world
        self.name = name
        self.ip = ip
        self.make_process = make_process
        self.process: Process | None = None
        self.life = 0
        """Counts starts: what was meant for an earlier life is not delivered."""
        self.rng = Random()
        self.streams: dict[Connection, None] = {}
        self.still_until = 0.0
        """Until then the process stands still, as with SIGSTOP: what comes in waits."""
        self.held_until = 0.0
        """Until then all that it sends and gets waits, and its timers run: slow processing of messages."""
        self._timer_at = -1.0

    # what a process may do

    def send_packet(self, data: bytes, source_port: int, destination: Address) -> None:
        self.world.send_packet(data, (self.ip, source_port), destination)

    def open_stream(self, destination: Address) -> Connection:
        """An end that may be written to at once."""
        return self.world.open_stream(self, destination)

    def log(self, line: str) -> None:
        self.world.log(f"{self.name} {line}")

    # what a test may do

    def start(self) -> None:
        assert self.process is None, f"{self.name} runs already"
        self.life += 1
        self.still_until = 0.0
        self.held_until = 0.0
        self.rng = Random(f"{self.world.seed} {self.name} {self.life}")
        self.process = self.make_process(self)
        self.log("starts")
        self.settle()

    def crash(self) -> None:
        """Without a word, as with kill -9: the other ends of its streams are reset, datagrams vanish."""
        assert self.process is not None, f"{self.name} is down already"
        self.process = None
        self._timer_at = -1.0
        self.log("crashes")
        for stream in list(self.streams):
            self.world.stream_close(stream, "reset by the peer")
        self.streams.clear()

    def stand_still(self, seconds: float) -> None:
        """The process gets no time; its connections stay open. One that stands still already does not start sooner: what
        waits for that moment would come behind what is later."""
        self.still_until = max(self.still_until, self.world.now + seconds)
        self.log(f"stands still for {seconds:.3f} s")

    def hold_messages(self, seconds: float) -> None:
        """All messages of the process, in both directions, wait for so long; its timers do not."""
        self.held_until = max(self.held_until, self.world.now + seconds)

    @property
    def receives_at(self) -> float:
        """When something that arrives now is read."""
        return max(self.world.now, self.still_until, self.held_until)

    @property
    def is_still(self) -> bool:
        return self.still_until > self.world.now

    def settle(self) -> None:
        """After every call into the process: send what it wants to send, move its timer."""
        process = self.process
        if process is None:
            return
        process.flush(self, self.world.now)
        deadline = process.next_timeout()
        if deadline is not None and not 0 <= self._timer_at <= deadline:
            self._timer_at = max(deadline, self.world.now)
            life = self.life
            self.world.at(self._timer_at, lambda: self._timer_fired(life))

    def _timer_fired(self, life: int) -> None:
        if self.life != life or self.process is None or self.world.now < self._timer_at:
            return
        if self._timer_at < 0:
            return
        if self.is_still:
            self.world.at(self.still_until, lambda: self._timer_fired(life))
            return
        self._timer_at = -1.0
        self.process.handle_timeout(self.world.now)
        self.settle()


class World:
    """`run` lets virtual time pass. `log_lines` and `digest` (of every byte delivered) tell one run from another."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.now = 0.0
        self.faults = faults if faults is not None else Faults()
        self.direct_block = ""
        """What happens to the Hello of a direct stream, because something between speaks gRPC only: "closed", "silent", or
        "http2" (an answer of HTTP/2); "" for none of it."""
        self.hosts: dict[str, Host] = {}
        self.log_lines: list[str] = []
        self.facts_pool = FactsPool()
        self.packets_sent = 0
        self.packet_bytes = 0
        self.stream_bytes = 0
        self._by_ip: dict[str, Host] = {}
        self._groups: dict[str, int] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._keeps_streams = False
        self._kept: list[Callable[[], None]] = []  # what is to arrive on streams when the partition heals
        self._rng = Random(seed)
        self.schedule_rng = Random(f"schedule {seed}")
        """For what a test decides by chance: the network's own chances do not move with it."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._hash = hashlib.blake2b(digest_size=16)

    # --- time

    def at(self, time: float, action: Callable[[], None]) -> None:
        assert time >= self.now
        self._order += 1
        heapq.heappush(self._heap, (time, self._order, action))

    def run(self, seconds: float) -> None:
        """Let this much virtual time pass."""
        end = self.now + seconds
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, action = heapq.heappop(heap)
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], limit: float, what: str) -> float:
        """Let time pass until the condition holds; how long it took. AssertionError with the seed past `limit` seconds."""
        start = self.now
        while not condition():
            self.check(self.now - start < limit, f"not within {limit:g} s: {what}")
            self.run(CONDITION_INTERVAL)
        return self.now - start

    def check(self, holds: bool, what: str) -> None:
        if not holds:
            self.fail(what)

    def fail(self, what: str) -> NoReturn:
        """For a check whose text is costly to make."""
        raise AssertionError(f"seed {self.seed}, virtual time {self.now:.3f} s: {what}")

    def log(self, line: str) -> None:
        self.log_lines.append(f"{self.now:.6f} {line}")

    @property
    def digest(self) -> str:
        """Of everything delivered and logged so far."""
        whole = self._hash.copy()
        whole.update("\n".join(self.log_lines).encode())
        return whole.hexdigest()

    # --- hosts and partitions

    def add_host(self, name: str, ip: str, make_process: Callable[[Host], Process]) -> Host:
        assert name not in self.hosts
        assert ip not in self._by_ip
        host = Host(self, name, ip, make_process)
        self.hosts[name] = host
        self._by_ip[ip] = host
        return host

    def partition(self, *groups: list[Host], keeps_streams: bool = False) -> None:
        """Hosts of different groups do not reach each other; hosts in no group are one more group. keeps_streams: what is
        written to streams meanwhile arrives when it heals, as that of TCP does; else these are gone."""
        self._keeps_streams = keeps_streams
        self._groups = {host.ip: number for number, group in enumerate(groups, 1) for host in group}
        self.log(f"partition into groups of {[len(group) for group in groups]}")

    def cut(self, hosts: list[Host], others: list[Host]) -> None:
        """None of the hosts reaches one of the others any more, while all of them reach everybody else."""
        pairs = [(host.ip, other.ip) for host in hosts for other in others]
        self._cuts.update(pairs)
        self._cuts.update((other, host) for host, other in pairs)
        self.log(f"cut between {[host.name for host in hosts]} and {[other.name for other in others]}")

    def cut_one_way(self, hosts: list[Host], others: list[Host]) -> None:
        """The others hear none of the hosts any more, which hear them. No new connection comes about between them."""
        self._cuts.update((host.ip, other.ip) for host in hosts for other in others)
        self.log(f"cut from {[host.name for host in hosts]} to {[other.name for other in others]}")

    def heal(self) -> None:
        self._groups = {}
        self._cuts.clear()
        self._keeps_streams = False
        for action in self._kept:
            self.at(self.now, action)
        self._kept.clear()
        self.log("partition heals")

    def is_cut(self) -> bool:
        return bool(self._cuts) or bool(self._groups)

    def reaches(self, source_ip: str, destination_ip: str) -> bool:
        if (source_ip, destination_ip) in self._cuts:
            return False
        return self._groups.get(source_ip, 0) == self._groups.get(destination_ip, 0)

    def break_streams(self, host: Host, other: Host, seen_by: list[Host]) -> None:
        """The streams between two hosts are gone, with what is on its way on them. Only hosts in `seen_by` notice: the
        other end stays half open."""
        for near in list(host.streams):
            far = near.peer
            if far is None or far.host is not other:
                continue
            for end in (near, far):
                end.cut = True
                if end.host in seen_by and not end.closed:
                    end.closed = True
                    end.host.streams.pop(end, None)
                    self._tell_broken(end)
        self.log(f"streams of {host.name} and {other.name} break, seen by {len(seen_by)}")

    def _tell_broken(self, end: Connection) -> None:
        self._to_process(end, lambda process: process.stream_closed(end, "connection reset", self.now))

    def _delay(self) -> float:
        faults = self.faults
        return faults.delay_min + self._rng.random() * (faults.delay_max - faults.delay_min)

    # --- datagrams

    def send_packet(self, data: bytes, source: Address, destination: Address) -> None:
        self.packets_sent += 1
        self.packet_bytes += len(data)
        copies = 1
        if self.faults.loss and self._rng.random() < self.faults.loss:
            copies = 0
        elif self.faults.duplication and self._rng.random() < self.faults.duplication:
            copies = 2
        leaves_at = self._leaves_at(source[0])
        for _ in range(copies):
            self.at(leaves_at + self._delay(), lambda: self._deliver_packet(data, source, destination))

    def _leaves_at(self, ip: str) -> float:
        host = self._by_ip.get(ip)
        return self.now if host is None else max(self.now, host.held_until)

    def _deliver_packet(self, data: bytes, source: Address, destination: Address) -> None:
        host = self._by_ip.get(destination[0])
        if host is None or host.process is None or not self.reaches(source[0], destination[0]):
            return
        if host.receives_at > self.now:
            self.at(host.receives_at, lambda: self._deliver_packet(data, source, destination))
            return
        self._hash.update(f"{self.now!r} {source[0]} {destination[0]} {len(data)} ".encode())
        self._hash.update(data)
        host.process.receive_packet(data, source, self.now)
        host.settle()

    # --- streams

    def open_stream(self, host: Host, destination: Address) -> Connection:
        near = Connection(host, destination[1], destination)
        host.streams[near] = None
        near.arrives_at = self._leaves_at(host.ip) + self._delay()
        self.at(near.arrives_at, lambda: self._connect(near, destination))
        return near

    def _connect(self, near: Connection, destination: Address) -> None:
        if near.closed or not self._is_alive(near):
            return
        if not (self.reaches(near.host.ip, destination[0]) and self.reaches(destination[0], near.host.ip)):
            if self._keeps_streams:
                self._kept.append(lambda: self._connect(near, destination))
            return  # nobody answers: the process's own timeout ends it
        host = self._by_ip.get(destination[0])
        if host is None or host.process is None:
            near.closed = True
            near.host.streams.pop(near, None)
            self._to_process(near, lambda process: process.stream_closed(near, "connection refused", self.now))
            return
        if host.receives_at > self.now:
            near.opens_at = host.receives_at
            self.at(host.receives_at, lambda: self._connect(near, destination))
            return
        far = Connection(host, destination[1], (near.host.ip, EPHEMERAL_PORT))
        far.peer = near
        near.peer = far
        far.arrives_at = self.now
        host.streams[far] = None
        host.process.stream_accepted(far, self.now)
        host.settle()
        self._send(far, lambda: self._to_process(near, lambda process: process.stream_opened(near, self.now)))

    def stream_write(self, stream: Connection, data: bytes) -> None:
        if not stream.closed and data:
            self.stream_bytes += len(data)
            if self.faults.pieces and len(data) > 1 and self._rng.random() < self.faults.pieces:
                cut = self._rng.randrange(1, len(data))
                first = data[:cut]
                data = data[cut:]
                self._send(stream, lambda: self._arrive(stream, first))
            self._send(stream, lambda: self._arrive(stream, data))

    def stream_close(self, stream: Connection, error: str = "") -> None:
        if stream.closed:
            return
        stream.closed = True
        stream.host.streams.pop(stream, None)
        self._send(stream, lambda: self._arrive_close(stream, error))

    def _send(self, stream: Connection, action: Callable[[], None]) -> None:
        stream.arrives_at = max(stream.arrives_at, self._leaves_at(stream.host.ip) + self._delay())
        self.at(stream.arrives_at, action)

    def _arrive(self, stream: Connection, data: bytes) -> None:
        if stream.opens_at > self.now:
            self.at(stream.opens_at, lambda: self._arrive(stream, data))
            return
        peer = stream.peer
        if self._is_kept(stream, lambda: self._arrive(stream, data)) or not self._gets_through(stream, peer):
            return
        assert peer is not None
        self._hash.update(f"{self.now!r} {stream.host.ip} {peer.host.ip} {len(data)} ".encode())
        self._hash.update(data)
        self._to_process(peer, lambda process: process.stream_received(peer, data, self.now))

    def _arrive_close(self, stream: Connection, error: str) -> None:
        peer = stream.peer
        if self._is_kept(stream, lambda: self._arrive_close(stream, error)) or not self._gets_through(stream, peer):
            return
        assert peer is not None
        peer.closed = True
        peer.host.streams.pop(peer, None)
        self._to_process(peer, lambda process: process.stream_closed(peer, error, self.now))

    def _is_kept(self, stream: Connection, action: Callable[[], None]) -> bool:
        """It arrives when the partition heals."""
        peer = stream.peer
        if not self._keeps_streams or peer is None or self.reaches(stream.host.ip, peer.host.ip):
            return False
        self._kept.append(action)
        return True

    def _gets_through(self, stream: Connection, peer: Connection | None) -> bool:
        if peer is None or peer.closed or stream.cut:
            return False
        stream.cut = not self.reaches(stream.host.ip, peer.host.ip)
        return not stream.cut

    def _is_alive(self, stream: Connection) -> bool:
        return stream.host.process is not None and stream.host.life == stream.host_life

    def _to_process(self, stream: Connection, call: Callable[[Process], None]) -> None:
        host = stream.host
        process = host.process
        if process is not None and self._is_alive(stream):
            if host.receives_at > self.now:
                self.at(host.receives_at, lambda: self._to_process(stream, call))
                return
            call(process)
            stream.host.settle()
