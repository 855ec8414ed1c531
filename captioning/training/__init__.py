"""The Lightning module, objectives, schedules and callbacks."""
