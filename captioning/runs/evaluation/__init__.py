"""An evaluation: its images, the captions generated of them, and what it writes."""
