"""What people look at: panels of attention, summaries."""
