"""The gRPC side of the API: requests that no servicer gets."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio
import pytest

from broker.api.pb import admin_pb2 as pb
from broker.api.pb.admin_pb2_grpc import PublishServiceStub


async def test_an_unknown_service_and_an_oversized_request(channel: grpc.aio.Channel) -> None:
    unknown: Any = channel.unary_unary("/gmqtt.admin.api.NoService/Get")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await unknown(b"")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
    publisher: Any = PublishServiceStub(channel)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publisher.Publish(pb.PublishRequest(topic_name="a", payload_raw=bytes(5_000_000)))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
