"""The objective, the loop that minimises it, epoch statistics and checkpoints. No method's name is known here."""
