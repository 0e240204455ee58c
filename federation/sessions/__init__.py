"""One owner for each client identifier in the federation: claims, and sessions that go from node to node."""
