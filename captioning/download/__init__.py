"""Downloads of data sets (`captioning download`)."""
