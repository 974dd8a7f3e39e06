"""From texts to balanced scores: encoder, head, angles."""
