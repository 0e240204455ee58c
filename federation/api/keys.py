"""The Keys service: the keyrings of all members of the gossip."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError, invalid_argument
from broker.api.tokens import Role
from federation.errors import NotRunning
from federation.gossip.keyring import KeyRefused
from federation.membership import FederationMembership
from federation.pb.keys_pb2 import KeyRequest, KeysResponse
from federation.pb.keys_pb2_grpc import KeysServicer
from federation.serf.key_queries import QUERY_INSTALL_KEY, QUERY_LIST_KEYS, QUERY_REMOVE_KEY, QUERY_USE_KEY
from federation.shell.key_control import KeysRefused


class KeysService(KeysServicer):
    roles: Final = {
        "ListKeys": Role.ADMIN,
        "InstallKey": Role.ADMIN,
        "UseKey": Role.ADMIN,
        "RemoveKey": Role.ADMIN,
    }

    def __init__(self, membership: FederationMembership) -> None:
        self._membership = membership

    async def ListKeys(self, request: Empty, context: object) -> KeysResponse:
        return await self._ask(QUERY_LIST_KEYS, "")

    async def InstallKey(self, request: KeyRequest, context: object) -> KeysResponse:
        return await self._ask(QUERY_INSTALL_KEY, request.key)

    async def UseKey(self, request: KeyRequest, context: object) -> KeysResponse:
        return await self._ask(QUERY_USE_KEY, request.key)

    async def RemoveKey(self, request: KeyRequest, context: object) -> KeysResponse:
        return await self._ask(QUERY_REMOVE_KEY, request.key)

    async def _ask(self, name: str, key: str) -> KeysResponse:
        try:
            counts = await self._membership.keys.ask(name, key)
        except KeyRefused as error:
            raise invalid_argument(f"key {error}") from error
        except KeysRefused as error:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error
        except NotRunning as error:
            raise ApiError(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        return KeysResponse(
            num_nodes=counts.nodes,
            num_responses=counts.responses,
            num_errors=counts.errors,
            messages=counts.messages,
            keys=counts.keys,
            primary_keys=counts.primary_keys,
        )
