"""The door to the session log and its leases: the one place where truth is stored."""
