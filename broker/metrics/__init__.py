"""What an operator sees of the running node: metrics, topics below $SYS, and whether it is ready."""
