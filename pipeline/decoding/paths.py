"""Places in a decoded payload: `$`, then `.name`, `['name']` or `[index]`, as in Spark's `variant_get`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final, TypeAlias

PATH: Final = re.compile(r"""\$(?:\[\d+\]|\.[^.\[\]'"]+|\['[^']+'\]|\["[^"]+"\])*""")
PATH_FORM: Final = "$.name, $['name'] and $[0], joined"
_STEP: Final = re.compile(r"""\[(\d+)\]|\.([^.\[\]'"]+)|\['([^']+)'\]|\["([^"]+)"\]""")

Steps: TypeAlias = tuple[str | int, ...]


class Twice:
    """Stands for what a payload has more than once, and should have once; it fits no column."""


TWICE: Final = Twice()
_KINDS: Final = {
    type(None): "null",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bytes: "bytes",
    dict: "an object",
    list: "an array",
    tuple: "an array",
    datetime: "an instant",
    Twice: "what stands twice",
}


class Undecodable(Exception):
    """A payload that goes aside; the text is the reason."""


def read_path(text: str) -> Steps:
    """Names and indices of a path. Raises ValueError."""
    if PATH.fullmatch(text) is None:
        raise ValueError(f"is no path; right are {PATH_FORM}")
    return tuple(
        int(match[1]) if match[1] is not None else match[2] or match[3] or match[4] for match in _STEP.finditer(text)
    )


def find(tree: Any, steps: Steps) -> Any:
    """The value at this place; None where it is missing. An index is also the key of an object (CBOR, MessagePack).
    Raises Undecodable where a value on the way has no parts."""
    for step in steps:
        if isinstance(tree, dict):
            tree = tree.get(step)
        elif isinstance(step, int) and isinstance(tree, list | tuple):
            tree = tree[step] if step < len(tree) else None
        elif tree is not None:
            raise Undecodable(f"{kind_of(tree)} stands where {step!r} should be found")
        if tree is None:
            return None
    return tree


def kind_of(value: Any) -> str:
    """A value's type for people."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")
