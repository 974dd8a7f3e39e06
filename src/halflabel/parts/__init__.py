"""What a method is put together from: losses, pseudo-labels, penalties, weights. No part sees a network."""
