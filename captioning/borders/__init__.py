"""What may come in and go out: values of settings, and files."""
