"""Tables, figures, attention panels and the report page."""
