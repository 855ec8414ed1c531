"""Pages for a browser: a report's folder, and trained captioners for photographs that are dropped."""
