"""Environments: what stands ready before the work, made once and kept by the digest of what it was made from."""
