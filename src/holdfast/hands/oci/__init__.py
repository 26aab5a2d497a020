"""Hands in containers: by the command line of podman or docker, or by an OCI runtime alone."""
