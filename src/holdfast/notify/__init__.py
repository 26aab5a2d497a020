"""Messages to people outside the terminal, and their answers: doors, a fake and real ones."""
