"""Topic filter -> value, asked by topic name (section 4.7). Filters come without `$share/name/`."""

from __future__ import annotations


class _Node:
    """One level of the filters that begin alike. `+` and `#` stand apart from the children: a match asks all three
    without hashing, and most nodes then need no dict at all."""

    __slots__ = ("children", "hash_value", "plus", "value")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] | None = None
        self.plus: _Node | None = None
        self.value: object | None = None  # of the filter that ends here
        self.hash_value: object | None = None  # of the filter that goes on with "/#" (or is "#", at the root)


class Trie:
    """Valid topic filters, one value each; None is no value. Matching and changing cost the number of levels, which
    broker.routing.names bounds; nothing here recurses."""

    __slots__ = ("_root", "_size")

    def __init__(self) -> None:
        self._root = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def get(self, topic_filter: bytes) -> object | None:
        node = self._root
        for level in topic_filter.split(b"/"):
            if level == b"#":
                return node.hash_value
            if level == b"+":
                child = node.plus
            else:
                children = node.children
                child = None if children is None else children.get(level)
            if child is None:
                return None
            node = child
        return node.value

    def set(self, topic_filter: bytes, value: object) -> None:
        """Put or replace the value of a filter."""
        assert value is not None
        node = self._root
        for level in topic_filter.split(b"/"):
            if level == b"#":
                if node.hash_value is None:
                    self._size += 1
                node.hash_value = value
                return
            if level == b"+":
                child = node.plus
                if child is None:
                    child = _Node()
                    node.plus = child
            else:
                children = node.children
                if children is None:
                    children = {}
                    node.children = children
                child = children.get(level)
                if child is None:
                    child = _Node()
                    children[level] = child
            node = child
        if node.value is None:
            self._size += 1
        node.value = value

    def delete(self, topic_filter: bytes) -> bool:
        """False when the filter has no value. Nodes that nothing needs any more go with it."""
        levels = topic_filter.split(b"/")
        path: list[_Node] = [self._root]
        for level in levels:
            node = path[-1]
            if level == b"#":
                break
            if level == b"+":
                child = node.plus
            else:
                children = node.children
                child = None if children is None else children.get(level)
            if child is None:
                return False
            path.append(child)
        last = path[-1]
        if levels[-1] == b"#":
            if last.hash_value is None:
                return False
            last.hash_value = None
        else:
            if last.value is None:
                return False
            last.value = None
        self._size -= 1
        for depth in range(len(path) - 1, 0, -1):
            node = path[depth]
            if node.value is not None or node.hash_value is not None or node.plus is not None or node.children:
                break
            parent = path[depth - 1]
            if levels[depth - 1] == b"+":
                parent.plus = None
            else:
                children = parent.children
                assert children is not None
                del children[levels[depth - 1]]
                if not children:
                    parent.children = None
        return True

    def match(self, topic: bytes) -> list[object]:
        """Values of all filters that match a topic name, in no order that means anything.

        A topic that begins with `$` is matched by no filter that begins with a wildcard [MQTT-4.7.2-1].
        """
        found: list[object] = []
        nodes: list[_Node] = [self._root]
        wildcards = not topic.startswith(b"$")
        for level in topic.split(b"/"):
            following: list[_Node] = []
            for node in nodes:
                if wildcards:
                    if node.hash_value is not None:
                        found.append(node.hash_value)
                    plus = node.plus
                    if plus is not None:
                        following.append(plus)
                children = node.children
                if children is not None:
                    child = children.get(level)
                    if child is not None:
                        following.append(child)
            if not following:
                return found
            nodes = following
            wildcards = True
        for node in nodes:
            if node.value is not None:
                found.append(node.value)
            if node.hash_value is not None:  # "a/#" matches "a" too (4.7.1.2)
                found.append(node.hash_value)
        return found

    def items(self) -> list[tuple[bytes, object]]:
        """(topic filter, value) of all, for listings."""
        found: list[tuple[bytes, object]] = []
        # Each entry: a node and its filter so far, with the separator that a further level needs.
        stack: list[tuple[_Node, bytes]] = [(self._root, b"")]
        while stack:
            node, prefix = stack.pop()
            if node.value is not None:
                found.append((prefix[:-1], node.value))
            if node.hash_value is not None:
                found.append((prefix + b"#", node.hash_value))
            if node.plus is not None:
                stack.append((node.plus, prefix + b"+/"))
            if node.children is not None:
                for level, child in node.children.items():
                    stack.append((child, prefix + level + b"/"))
        return found
