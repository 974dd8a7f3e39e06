"""The commands of `halflabel`, one file each; heavy imports wait inside the functions."""
