"""A service of the API by its name: its module is imported when it is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Service:
    """place   module:service of the generated code
    plugin  of the node, which serves it
    """

    place: str
    plugin: str


BACKUP: Final = Service("broker.api.pb.admin_pb2:BackupService", "admin")
CLIENTS: Final = Service("broker.api.pb.admin_pb2:ClientService", "admin")
NODE: Final = Service("broker.api.pb.admin_pb2:NodeService", "admin")
PUBLISHING: Final = Service("broker.api.pb.admin_pb2:PublishService", "admin")
RETAINED: Final = Service("broker.api.pb.admin_pb2:RetainedService", "admin")
SUBSCRIPTIONS: Final = Service("broker.api.pb.admin_pb2:SubscriptionService", "admin")
TOKENS: Final = Service("broker.api.pb.admin_pb2:TokenService", "admin")
TOPICS: Final = Service("broker.api.pb.admin_pb2:TopicService", "admin")
TRACES: Final = Service("broker.api.pb.admin_pb2:TraceService", "admin")
ACCESS: Final = Service("broker.auth.pb.account_pb2:AccessService", "auth")
ACCOUNTS: Final = Service("broker.auth.pb.account_pb2:AccountService", "auth")
