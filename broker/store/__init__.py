"""Durable state, which survives the end of the process: changes of durable state, and the stores that keep them."""
