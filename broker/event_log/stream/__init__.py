"""Subscriptions to what the event log has: `$stream/`, docs/replay.md."""
