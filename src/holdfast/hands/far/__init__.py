"""Hands on another machine: the protocol, its transport, and the transfer of the workspace in both directions."""
