"""Reading files into corpora, label handling, cleaning, splitting and augmentation; only `translation` needs torch."""
