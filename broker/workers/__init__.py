"""The processes of a node with `workers`: rules of their supervision, and the part of the settings that each has."""
