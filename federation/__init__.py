"""Nodes that act as one broker: Serf gossip, event streams, the federation tree."""
