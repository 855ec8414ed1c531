"""Parts of the two decoders: classes on tensors, with equation and source."""
