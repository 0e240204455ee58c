"""The jobs; each module registers its pipeline (pipeline/registry.py)."""
