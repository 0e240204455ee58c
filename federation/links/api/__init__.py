"""The API of links."""
