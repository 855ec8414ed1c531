"""Where two systems disagree, as text, numbers and a page."""
