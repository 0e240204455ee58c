"""TokenService: the tokens of the API, in the file of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final, TypeVar

import grpc
from google.protobuf.empty_pb2 import Empty

from broker.api.errors import ApiError, invalid_argument, not_found
from broker.api.fields import timestamp
from broker.api.guard import ApiGuard
from broker.api.merging import Merged
from broker.api.pb.admin_pb2 import (
    ApiToken,
    CreateTokenRequest,
    CreateTokenResponse,
    DeleteTokenRequest,
    ListTokensResponse,
)
from broker.api.pb.admin_pb2_grpc import TokenServiceServicer
from broker.api.token_command import SECONDS_MAX, TokenFile
from broker.api.tokens import ROLES, Role
from broker.server.command_fault import CommandFault
from broker.server.logging import get_logger

Result = TypeVar("Result")


class TokenService(TokenServiceServicer):
    roles: Final = {"List": Role.ADMIN, "Create": Role.ADMIN, "Delete": Role.ADMIN}
    for_workers: Final = {
        "Create": Merged.in_one_file,
        "Delete": Merged.in_one_file,
    }

    def __init__(self, guard: ApiGuard) -> None:
        self._guard = guard
        self._log = get_logger("api")

    async def List(self, request: Empty, context: object) -> ListTokensResponse:
        response = ListTokensResponse()
        for token in await self._done(lambda file: file.tokens()):
            shown = ApiToken(name=token.name, role=token.role.name.lower(), created=token.created)
            if token.expires is not None:
                shown.expires_at.CopyFrom(timestamp(token.expires.timestamp()))
            response.tokens.append(shown)
        return response

    async def Create(self, request: CreateTokenRequest, context: object) -> CreateTokenResponse:
        if request.role not in ROLES:
            raise invalid_argument(f'role "{request.role[:20]}" is not one of {", ".join(ROLES)}')
        if request.expires_seconds > SECONDS_MAX:
            raise invalid_argument(f"expires_seconds is {request.expires_seconds}, may be a hundred years at most")
        expires = timedelta(seconds=request.expires_seconds) if request.expires_seconds else None
        token = await self._done(lambda file: file.create(request.name, request.role, expires))
        self._log.info("token made by the API", role=request.role, name=request.name)
        return CreateTokenResponse(token=token)

    async def Delete(self, request: DeleteTokenRequest, context: object) -> Empty:
        if all(token.name != request.name for token in await self._done(lambda file: file.tokens())):
            raise not_found(f'there is no token "{request.name}"')
        await self._done(lambda file: file.delete(request.name))
        self._log.info("token deleted by the API", name=request.name)
        return Empty()

    async def _done(self, work: Callable[[TokenFile], Result]) -> Result:
        """Work on the file, which counts afterwards. Raises ApiError."""
        if not self._guard.is_on:
            text = "the node has no api.token_file: whoever reaches its API may call everything"
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, text)
        file = TokenFile(self._guard.path)

        def run() -> Result:
            found = work(file)
            self._guard.load()
            return found

        try:
            return await asyncio.to_thread(run)
        except CommandFault as fault:
            raise ApiError(grpc.StatusCode.FAILED_PRECONDITION, fault.message) from None
