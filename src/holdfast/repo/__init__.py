"""Snapshots of a workspace, tied to sequence numbers (S22): a shadow git repository, and an in-memory store."""
