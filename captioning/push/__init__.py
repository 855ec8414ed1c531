"""Upload a captioner and its card to the Hugging Face Hub: `captioning push`."""
