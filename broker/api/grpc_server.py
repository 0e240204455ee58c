"""The gRPC side of the API: its addresses and its calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import grpc
import grpc.aio

from broker.api.gateway import CALLS_MAX, REQUEST_BYTES_MAX
from broker.api.http_server import STOP_SECONDS_MAX, bound_address
from broker.api.method import ApiMethod
from broker.api.socket_files import check_socket_path, remove_socket_files, try_socket_path
from broker.config.addresses import Address
from broker.server.start_error import StartError, bind_error

OPTIONS: Final = (
    ("grpc.so_reuseport", 0),  # or a second process would share the port instead of being refused
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
)


class GrpcServer:
    """All `api.grpc` listeners of a node. `addresses` are known after `open`, with real ports."""

    def __init__(self, services: Mapping[str, list[ApiMethod]]) -> None:
        self.addresses: list[str] = []
        self._socket_paths: list[str] = []
        self._server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
        for name, methods in services.items():
            handlers = {method.descriptor.name: method.grpc_handler() for method in methods}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))

    async def open(self, key: str, address: Address) -> None:
        """Bind one address; raises StartError that names `key`, the address and the fault. Calls come after `start`."""
        await check_free(key, address)
        try:
            port = self._server.add_insecure_port(target(address))
        except RuntimeError as error:
            raise StartError(f"{key}: cannot open {address}: {error}") from error
        if address.is_unix:
            self._socket_paths.append(address.path)
        self.addresses.append(str(bound_address(address, port)))

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        """Take no new calls; those that run have STOP_SECONDS_MAX."""
        await self._server.stop(STOP_SECONDS_MAX)
        remove_socket_files(self._socket_paths)


async def check_free(key: str, address: Address) -> None:
    """gRPC does not say why an address cannot be opened: open it once without gRPC, which does."""
    if address.is_unix:
        check_socket_path(key, address)
        try_socket_path(key, address)
        return
    try:
        probe = await asyncio.get_running_loop().create_server(asyncio.Protocol, address.host or None, address.port)
    except OSError as error:
        raise bind_error(error, str(address), key) from error
    probe.close()
    await probe.wait_closed()


def target(address: Address) -> str:
    if address.is_unix:
        return f"unix:{address.path}"
    return address.host_port if address.host else f"[::]:{address.port}"
