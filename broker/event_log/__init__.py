"""The event log: what was published on this node, in order, in segments on disk."""
