"""Networks that turn images into context sets."""
