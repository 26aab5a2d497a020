"""The door to the session log and its leases."""
