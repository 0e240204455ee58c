"""The broker's side of links: its implementation of broker/bridging.py."""
