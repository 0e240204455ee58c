"""Sockets of links."""
