"""Missions in the simulator."""
