"""Generated from proto/ by scripts/build_proto."""
