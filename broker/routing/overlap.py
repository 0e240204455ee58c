"""Topic filters that have a topic in common with another one, found in a tree of filters."""

# compiled with mypyc
from __future__ import annotations

from broker.routing.trie import Node, Trie, levels_below


def overlapping(tree: Trie, topic_filter: bytes) -> list[object]:
    """Values of all filters in the tree that match a topic that `topic_filter` matches too, in any order. `tree.visited` is
    then the number of levels that were compared."""
    levels = topic_filter.split(b"/")
    is_open = levels[-1] == b"#"
    if is_open:
        levels.pop()
    count = len(levels)
    # Wildcards at the beginning do not match topics that begin with `$` [MQTT-4.7.2-1].
    begins_with_wildcard = count == 0 or levels[0] == b"+"
    begins_with_dollar = not begins_with_wildcard and levels[0].startswith(b"$")
    found: list[object] = []
    visited = 0
    nodes: list[Node] = [tree.root]  # their paths overlap as far as the filter goes
    while nodes:
        node = nodes.pop()
        depth = node.depth
        is_root = depth == 0
        if node.hash_value is not None and not (is_root and begins_with_dollar):
            found.append(node.hash_value)
        if node.value is not None and (depth == count or (is_open and depth > count)):
            found.append(node.value)
        if depth >= count and not is_open:
            continue
        below: list[Node] = []
        if node.plus is not None and not (is_root and begins_with_dollar):
            below.append(node.plus)
        children = node.children
        if children is not None:
            if depth >= count or levels[depth] == b"+":
                for level, child in children.items():
                    if not (is_root and level.startswith(b"$")):
                        below.append(child)
            else:
                one = children.get(levels[depth])
                if one is not None:
                    below.append(one)
        for child in below:
            visited += child.depth - depth
            if _overlaps(child, node, levels, is_open):
                nodes.append(child)
    tree.visited = visited
    return found


def _overlaps(node: Node, above: Node, levels: list[bytes], is_open: bool) -> bool:
    """Return whether the path of a node overlaps, where that of `above` and the next level do."""
    depth = above.depth + 1
    if node.depth == depth:
        return True
    count = len(levels)
    if node.depth > count and not is_open:
        return False
    for level in levels_below(node, above)[1:]:
        if depth >= count:
            return True
        wanted = levels[depth]
        if wanted not in (level, b"+") and level != b"+":
            return False
        depth += 1
    return True
