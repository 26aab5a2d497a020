"""What users read on a terminal."""
