"""The objective, the loop, the averaged weights and the checkpoints. No method's name is known here."""
