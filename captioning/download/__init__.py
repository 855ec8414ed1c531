"""Downloads: data sets (`captioning download`), and captioners named by an address."""
