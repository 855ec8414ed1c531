"""Downloads of files and archives, with every wait and every length bounded."""
