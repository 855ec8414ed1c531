"""Parts of the two decoders, each a class on tensors with its equation and source."""
