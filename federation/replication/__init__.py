"""Copies of the stores of other nodes, and those of this one on others: what outlives the loss of a disk."""
