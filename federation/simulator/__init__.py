"""Many nodes in one process on virtual time, with one seed: the main test of everything distributed."""

from federation.simulator.network import Faults, Stream
from federation.simulator.process import Process
from federation.simulator.world import Host, World

__all__ = ["Faults", "Host", "Process", "Stream", "World"]
