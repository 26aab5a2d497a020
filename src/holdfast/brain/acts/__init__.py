"""Acts of the brain, by the action that they carry out."""
