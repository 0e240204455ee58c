"""The parts that keep definitions on disk and carry them to other nodes."""
