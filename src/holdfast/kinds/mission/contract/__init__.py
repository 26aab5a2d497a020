"""Contracts: their files, what is wrong with them, and what is hidden or protected."""
