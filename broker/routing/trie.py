"""Topic filter -> value, looked up by topic name [MQTT5 4.7]. Filters come without `$share/name/`.

A radix tree of levels: levels without a branch between them are one node. A filter of 128 levels takes no more memory
than a filter of one level with the same number of bytes.
"""

# compiled with mypyc
from __future__ import annotations

from sys import getsizeof
from typing import Final

# A dict does not shrink when entries are deleted. It is copied when it is larger than this: a new one with n children has
# at most 112 + 120 * n bytes, so at least a quarter of the children were deleted since the last copy.
_CHILDREN_BYTES: Final = 232
_CHILD_BYTES: Final = 160


class Node:
    """A node other than the root has a value or at least two branches.

    path      all levels from the root to here, without a last `#`. A change elsewhere in the tree never changes it.
    depth     how many levels those are
    children, plus
              branches by their first level. `plus` is the branch of `+`, outside of the dict like `hash_value`: a match
              needs no hashing for them, and most nodes need no dict.
    value, hash_value
              of the filters `path` and `path/#` (`#` at the root)
    changed   `Trie.changes` when it got its value
    """

    __slots__ = ("changed", "children", "depth", "hash_value", "path", "plus", "value")

    def __init__(self, path: bytes, depth: int) -> None:
        self.path = path
        self.depth = depth
        self.children: dict[bytes, Node] | None = None
        self.plus: Node | None = None
        self.value: object | None = None
        self.hash_value: object | None = None
        self.changed = 0


class Trie:
    """One value for each valid topic filter; None is no value. `get`, `set` and `delete` take time in proportion to the
    number of levels, which broker.routing.names bounds. Nothing here recurses.

    Memory: at most 600 bytes for each filter and 3 times its bytes (tests/broker/routing/test_memory.py).

    changes  number of calls of `set`
    visited  levels of filters that the last `match` compared
    """

    def __init__(self) -> None:
        self.root = Node(b"", 0)
        self._size = 0
        self.changes = 0
        self.visited = 0

    def __len__(self) -> int:
        return self._size

    def get(self, topic_filter: bytes) -> object | None:
        levels = topic_filter.split(b"/")
        is_open = _pop_hash(levels)
        path = topic_filter[:-2] if is_open else topic_filter
        count = len(levels)
        node = self.root
        while node.depth < count:
            child = _child(node, levels[node.depth])
            if child is None:
                return None
            node = child
        if node.path != path or node.depth != count:
            return None
        return node.hash_value if is_open else node.value

    def set(self, topic_filter: bytes, value: object) -> None:
        """Set or replace the value of a filter."""
        assert value is not None
        levels = topic_filter.split(b"/")
        is_open = _pop_hash(levels)
        node = self._find_or_add(topic_filter[:-2] if is_open else topic_filter, levels)
        self.changes += 1
        if is_open:
            if node.hash_value is None:
                self._size += 1
            node.hash_value = value
        else:
            if node.value is None:
                self._size += 1
            node.value = value
            node.changed = self.changes

    def delete(self, topic_filter: bytes) -> bool:
        """False when the filter has no value."""
        levels = topic_filter.split(b"/")
        is_open = _pop_hash(levels)
        path = topic_filter[:-2] if is_open else topic_filter
        count = len(levels)
        above = parent = node = self.root
        while node.depth < count:
            child = _child(node, levels[node.depth])
            if child is None:
                return False
            above = parent
            parent = node
            node = child
        if node.path != path or node.depth != count:
            return False
        if is_open:
            if node.hash_value is None:
                return False
            node.hash_value = None
        else:
            if node.value is None:
                return False
            node.value = None
        self._size -= 1
        if node.children is None and node.plus is None and node.value is None and node.hash_value is None and count:
            _unlink(parent, levels[parent.depth])
            node = parent
            parent = above
        _skip_if_needless(parent, node, levels)
        return True

    def match(self, topic: bytes) -> list[object]:
        """Values of all filters that match a topic name, in any order.

        Filters that begin with a wildcard do not match topics that begin with `$` [MQTT-4.7.2-1].
        """
        found: list[object] = []
        levels = topic.split(b"/")
        count = len(levels)
        without_wildcards = topic.startswith(b"$")  # at the root
        visited = 0
        others: list[Node] = []  # branches to visit later
        node = self.root
        while True:
            depth = node.depth
            following: Node | None = None
            if depth or not without_wildcards:
                if node.hash_value is not None:  # "a/#" matches "a" too [MQTT5 4.7.1.2]
                    found.append(node.hash_value)
                if depth < count:
                    following = node.plus
                    if following is not None:
                        visited += following.depth - depth
                        if following.depth > depth + 1 and not _leads_to(following, node, 1, levels):
                            following = None
            if depth == count:
                if node.value is not None:
                    found.append(node.value)
            else:
                children = node.children
                level = levels[depth]
                child = None if children is None else children.get(level)
                if child is not None:
                    visited += child.depth - depth
                    if child.depth == depth + 1 or _leads_to(child, node, len(level), levels):
                        if following is not None:
                            others.append(following)
                        following = child
            if following is None:
                if not others:
                    break
                following = others.pop()
            node = following
        self.visited = visited
        return found

    def items(self) -> list[tuple[bytes, object]]:
        """(topic filter, value) of all filters, in any order."""
        found: list[tuple[bytes, object]] = []
        nodes: list[Node] = [self.root]
        while nodes:
            node = nodes.pop()
            if node.value is not None:
                found.append((node.path, node.value))
            if node.hash_value is not None:
                found.append((node.path + b"/#" if node.depth else b"#", node.hash_value))
            if node.plus is not None:
                nodes.append(node.plus)
            if node.children is not None:
                nodes.extend(node.children.values())
        return found

    def _find_or_add(self, path: bytes, levels: list[bytes]) -> Node:
        count = len(levels)
        node = self.root
        while node.depth < count:
            depth = node.depth
            level = levels[depth]
            child = _child(node, level)
            if child is None:
                child = Node(path, count)
                _link(node, level, child)
            elif child.depth > depth + 1:
                below = levels_below(child, node)
                common = 1
                while common < len(below) and depth + common < count and below[common] == levels[depth + common]:
                    common += 1
                if common < len(below):
                    depth += common
                    middle = Node(b"/".join(levels[:depth]), depth)
                    _link(middle, below[common], child)
                    _link(node, level, middle)
                    child = middle
            node = child
        return node


def levels_below(node: Node, above: Node) -> list[bytes]:
    """Levels of a node's path below `above`, which is one of its ancestors."""
    return node.path[len(above.path) + 1 if above.depth else 0 :].split(b"/")


def _leads_to(node: Node, above: Node, size: int, levels: list[bytes]) -> bool:
    """Return whether the levels of a topic match the path of the node. They match the path of `above` and the next
    level, which has `size` bytes in the path."""
    if node.depth > len(levels):
        return False
    depth = above.depth + 1
    rest = node.path[len(above.path) + size + (2 if above.depth else 1) :]
    if node.depth == depth + 1:
        return rest == levels[depth] or rest == b"+"
    for level in rest.split(b"/"):
        if level != levels[depth] and level != b"+":
            return False
        depth += 1
    return True


def _pop_hash(levels: list[bytes]) -> bool:
    """Remove a last `#`. Returns whether there was one."""
    if levels[-1] != b"#":
        return False
    levels.pop()
    return True


def _child(node: Node, level: bytes) -> Node | None:
    if level == b"+":
        return node.plus
    children = node.children
    return None if children is None else children.get(level)


def _link(node: Node, level: bytes, child: Node) -> None:
    if level == b"+":
        node.plus = child
    elif node.children is None:
        node.children = {level: child}
    else:
        node.children[level] = child


def _unlink(node: Node, level: bytes) -> None:
    if level == b"+":
        node.plus = None
        return
    children = node.children
    assert children is not None
    del children[level]
    if not children:
        node.children = None
    elif getsizeof(children) > _CHILDREN_BYTES + _CHILD_BYTES * len(children):
        node.children = dict(children)


def _skip_if_needless(parent: Node, node: Node, levels: list[bytes]) -> None:
    """Link the only branch of a node without a value to its parent. The node itself does not change: a RetainedWalk may
    continue from it."""
    if node.depth == 0 or node.value is not None or node.hash_value is not None:
        return
    children = node.children
    if children is None:
        child = node.plus
        assert child is not None
    elif node.plus is None and len(children) == 1:
        child = next(iter(children.values()))
    else:
        return
    _link(parent, levels[parent.depth], child)
