"""An operator's view of the running node: metrics, topics below $SYS, and whether it is ready."""
