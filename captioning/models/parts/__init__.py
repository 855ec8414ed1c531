"""What the two decoders are made of; each part is a class for tensors alone, with its equation and source."""
