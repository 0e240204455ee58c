"""Routing: topic names and filters, the subscription trie, retained messages, shared groups."""
