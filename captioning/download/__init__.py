"""Data sets brought to this machine, in the layout that their readers expect: `python -m captioning.download`."""
