"""What is ready on this machine, and how to mend what is not."""
