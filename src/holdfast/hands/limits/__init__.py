"""Limits for all processes of one sandbox together: mechanisms of the machine, plan for a policy, and cleanup."""
