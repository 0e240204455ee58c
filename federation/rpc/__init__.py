"""The RPC of a Serf agent: what `serf members`, `serf query` and their like speak (wire-gossip 11)."""
