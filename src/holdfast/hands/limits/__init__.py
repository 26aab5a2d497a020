"""Limits for all of one hands together: what this machine can hold, how a policy becomes it, what is left over."""
