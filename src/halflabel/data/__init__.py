"""Files in, corpora out: reading, label identity, splits and strong views; torch only inside `translate`."""
