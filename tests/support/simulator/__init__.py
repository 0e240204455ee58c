"""Many nodes in one process on virtual time, with one seed: the main test of everything distributed."""

from simulator.network import Faults, Stream
from simulator.process import Process
from simulator.world import Host, World

__all__ = ["Faults", "Host", "Process", "Stream", "World"]
