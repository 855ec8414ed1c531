"""Upload a captioner and its card to the Hugging Face Hub: `python -m captioning.push`."""
