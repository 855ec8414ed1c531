"""What was trained elsewhere: the bundled captioner, addresses, folders and tokenizers."""
