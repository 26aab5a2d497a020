"""Hands on another machine: what they are asked, how it gets there, and how the workspace goes to and fro."""
