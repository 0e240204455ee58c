"""A node without peers, whose store begins with records that a test gives."""

from __future__ import annotations

import random

from broker.broker import Broker
from broker.config.settings_mqtt import MqttSettings
from broker.store.identity import StoreIdentity
from broker.store.journal import Journal, StoredRecord
from broker.store.records import encode_changes
from federation.node import Node
from federation.settings import FederationSettings
from federation.stream.state import State

Records = dict[int, tuple[object, ...]]
STORE_ID = "5" * 32


class Station:
    """A node with a store that begins with these records."""

    def __init__(self, records: Records, name: str = "n1", starts: int = 1, zone: str = "") -> None:
        self.broker = Broker(MqttSettings(), random.Random(1), 0.0)
        self.broker.identity = StoreIdentity(STORE_ID, starts, True)
        self.journal = Journal()
        for number, record in records.items():
            self.journal.begin_behind(number)
            self.journal.kept[number] = StoredRecord(record)
        self.broker.set_journal(self.journal)
        self.disk = dict(records)
        self.node = Node(name, self.broker, FederationSettings(node_name=name, zone=zone), random.Random(1))
        self.node.begin(0.0, False)

    def commit(self) -> None:
        begun = [self.journal.commit] if self.journal.commit else []
        for number, record in encode_changes(self.journal.take(), 0.0).items():
            if record is None:
                self.disk.pop(number, None)
            else:
                self.disk[number] = record
        self.broker.commits.stored(begun)

    def state(self) -> State:
        """Of the stream to the other node."""
        return self.node.senders["n2"].state

    def kinds(self) -> list[object]:
        return sorted([record[0] for record in self.disk.values()], key=str)
