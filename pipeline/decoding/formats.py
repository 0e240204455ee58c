"""The formats of payloads: bytes -> a tree of objects, arrays and values."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from typing import Any, Final, NoReturn

import msgpack  # type: ignore[import-untyped]

from pipeline.decoding.messages import message_decoder
from pipeline.decoding.metrics import decode_metrics
from pipeline.decoding.paths import Undecodable
from pipeline.decoding.schemas import PROTOBUF, SPARKPLUG, DeclaredSchema, SchemaError

Decode = Callable[[bytes], Any]
CBOR_INSTALL: Final = "pip install 'gmqttd[tables]'"
DEPTH_MAX: Final = 100  # of CBOR; the other libraries have bounds of their own


def decoder(schema: DeclaredSchema) -> Decode:
    """Return what decodes the payloads of a schema; that raises Undecodable. Raises SchemaError."""
    if schema.format == PROTOBUF:
        return message_decoder(schema)
    if schema.format == SPARKPLUG:
        return decode_metrics
    if schema.format == "cbor":
        return _cbor_decoder(schema)
    return decode_msgpack if schema.format == "msgpack" else decode_json


def decode_json(payload: bytes) -> Any:
    """A key that stands twice, NaN, infinity and numbers that would become it are refused. Raises Undecodable."""
    try:
        return _JSON.decode(payload.decode())
    except RecursionError:
        raise Undecodable("not JSON: nested too deep") from None
    except ValueError as error:
        raise Undecodable(f"not JSON: {error}") from None


def _object(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _number(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text[:40]} is beyond a double")
    return found


_JSON: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_number)


def decode_msgpack(payload: bytes) -> Any:
    """Timestamps become instants. Raises Undecodable."""
    try:
        return msgpack.unpackb(payload, timestamp=3, strict_map_key=False, object_pairs_hook=_object)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Undecodable(f"not MessagePack: {error or 'it ends too early'}") from None


def _cbor_decoder(schema: DeclaredSchema) -> Decode:
    try:
        import cbor2
    except ImportError:
        raise SchemaError(f"schemas.{schema.name}.format cbor needs cbor2. To install it: {CBOR_INSTALL}") from None

    def decode(payload: bytes) -> Any:
        """Tags 0 and 1 become instants. Raises Undecodable."""
        data = io.BytesIO(payload)
        try:
            found = cbor2.CBORDecoder(data, max_depth=DEPTH_MAX, allow_duplicate_keys=False).decode()
        except (cbor2.CBORError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
            raise Undecodable(f"not CBOR: {error}") from None
        if data.tell() < len(payload):
            raise Undecodable(f"not CBOR: {len(payload) - data.tell()} bytes are left behind it")
        return None if found is cbor2.undefined else found

    return decode
