"""Pages for a browser: a report, and captioners for dropped photographs."""
