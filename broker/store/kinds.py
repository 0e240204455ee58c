"""The kinds of records: the first value of each."""

# compiled with mypyc
from __future__ import annotations

from typing import Final

SESSION: Final = 1
SUBSCRIPTION: Final = 2
MESSAGE: Final = 3  # of queued and in-flight messages, which refer to it
OUTGOING: Final = 4
RECEIVED: Final = 5  # a QoS 2 message that was received and not released
RETAINED: Final = 6
STORE: Final = 7  # which store this is; there is one
OUTBOX: Final = 8  # events for another node (federation/stream/outbox.py)
POSITION: Final = 9  # how far the events of another store are done (federation/stream/positions.py)
INTEREST: Final = 10  # filters of another node (federation/stream/stored_interest.py)
TOMBSTONE: Final = 11  # the topic of a deleted retained message (federation/stream/retained_versions.py)
HOME: Final = 12  # this node is the home of a client (federation/sessions/home.py)
DEPARTING: Final = 13  # a session that goes to another node (federation/sessions/departing.py)
ENDED: Final = 14  # a session that has ended while another node was away that may have it (federation/sessions/home.py)
HEAD: Final = 15  # the beginning of a session that comes from another node (federation/sessions/home.py)
REPLICA: Final = 16  # a copy of another node's store (federation/replication/replica.py)
COPY: Final = 17  # a record of it, as older versions kept it
KEEPERS: Final = 18  # which nodes keep a copy of this store (federation/replication/replication.py)
RUN: Final = 19  # records of a copy, as they came
WILL: Final = 20  # the will of a client whose session ends with its connection (broker/session/will.py)
DELETION: Final = 21  # when the retained message of a topic was deleted (federation/links/bridging/own_domain.py)
