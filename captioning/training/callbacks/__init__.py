"""What happens beside the training of a captioner."""
