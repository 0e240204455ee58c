"""The simulated hosts keep the promises of a network and a kernel."""

from __future__ import annotations

from simulator.network import Stream
from simulator.process import Process
from simulator.world import World


class Listener(Process):
    """Records the bytes that come in on streams."""

    def __init__(self) -> None:
        self.received: list[bytes] = []

    def stream_received(self, stream: Stream, data: bytes, now: float) -> None:
        self.received.append(data)


def test_a_host_that_is_stopped_twice_gets_its_packets_in_order() -> None:
    world = World(1)
    listener = Listener()
    near = world.add_host("near", "10.0.0.1", lambda host: Process())
    far = world.add_host("far", "10.0.0.2", lambda host: listener)
    near.start()
    far.start()
    stream = near.open_stream(("10.0.0.2", 1))
    world.run(1.0)
    far.stand_still(60.0)
    stream.write(b"1")
    world.run(10.0)
    far.stand_still(5.0)
    stream.write(b"2")
    world.run(20.0)
    stream.write(b"3")
    world.run(29.0)
    assert listener.received == []
    world.run(2.0)
    assert listener.received == [b"1", b"2", b"3"]
