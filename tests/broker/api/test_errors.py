"""ApiError: gRPC codes and their HTTP statuses."""

from __future__ import annotations

from broker.api.errors import HTTP_STATUSES


def test_every_grpc_code_has_a_status() -> None:
    assert {code.value[0] for code in HTTP_STATUSES} == set(range(17))
