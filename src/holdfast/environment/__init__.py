"""What stands ready before work begins: how it is made, kept by digest, and laid under hands."""
