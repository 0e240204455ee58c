"""Messages as dataclasses: order of keys, values that are not written, readers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from federation.gossip.errors import WireError
from federation.gossip.message_fields import Message, uint16_field, wire
from federation.gossip.msgpack_fields import decode_fields, encode, name_field


@dataclass(slots=True)
class Example(Message):
    TYPE = 7

    port: int = wire("Port", uint16_field)
    node: str = wire("Node", name_field, optional=True)


@pytest.mark.parametrize(("node", "keys"), [("n", [b"Node", b"Port"]), ("", [b"Port"])])
def test_keys_ascend_and_an_empty_optional_value_is_not_written(node: str, keys: list[bytes]) -> None:
    encoded = Example(0, node).encode()
    assert encoded[0] == 7
    assert list(decode_fields(encoded[1:])) == keys
    assert Example.decode(encoded[1:]) == Example(0, node)


def test_a_value_is_checked_by_its_reader() -> None:
    with pytest.raises(WireError, match="out of range"):
        Example.decode(encode({"Port": 1 << 16}))
