"""Features of a frozen backbone on disk."""
