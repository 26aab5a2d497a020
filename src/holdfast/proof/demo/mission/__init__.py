"""`holdfast demo --mission`: a whole mission on a stripped library, killed and held against the truth."""
