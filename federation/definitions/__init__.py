"""Definitions of links: upstreams, upstream sets and policies; their meaning, their replication, their file, their API."""
