"""Data sets downloaded in the layout that their readers expect: `python -m captioning.download`."""
