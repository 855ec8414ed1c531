"""Captioners trained elsewhere: the bundled one, addresses, and folders of `transformers`."""
