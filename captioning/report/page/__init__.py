"""The comparison as one page that a browser opens: table, curves, photographs, attention, systems."""
