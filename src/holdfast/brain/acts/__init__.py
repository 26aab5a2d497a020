"""How each action is carried out."""
