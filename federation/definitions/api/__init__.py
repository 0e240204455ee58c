"""Definitions over the API of a node."""
