"""A captioner to the Hugging Face Hub: its weights, and a card that says what they are."""
