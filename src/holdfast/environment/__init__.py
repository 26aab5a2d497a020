"""Environments: the set-up of a workspace before work begins, made once and stored under the digest of its inputs."""
