"""Payloads into columns by declared schemas."""
