"""What several methods share: heads, the network, losses, pseudo-labels. Nothing here knows a method by name."""
