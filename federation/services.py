"""The services of this package by their names, for commands."""

from __future__ import annotations

from typing import Final

from gmqttctl.service import Service

MEMBERSHIP: Final = Service("federation.pb.federation_pb2:Membership", "federation")
PEERS: Final = Service("federation.pb.federation_pb2:Peers", "federation")
KEYS: Final = Service("federation.pb.keys_pb2:Keys", "federation")
SESSIONS: Final = Service("federation.sessions.pb.sessions_pb2:Sessions", "federation")
LINKS: Final = Service("federation.links.pb.link_status_pb2:FederationLinks", "links")
QUEUES: Final = Service("federation.links.pb.link_status_pb2:GroupQueues", "links")
PARAMETERS: Final = Service("federation.definitions.pb.definitions_pb2:ParameterService", "links")
POLICIES: Final = Service("federation.definitions.pb.definitions_pb2:PolicyService", "links")
DEFINITIONS: Final = Service("federation.definitions.pb.definitions_pb2:DefinitionsService", "links")
