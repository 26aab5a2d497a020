"""`holdfast demo --mission`: a whole mission on a stripped library, killed at random and verified at the end."""
