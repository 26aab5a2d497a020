"""Plans: from criteria to tasks."""
