"""Missions: a goal with a sealed contract, a repository, roles, and a budget."""
