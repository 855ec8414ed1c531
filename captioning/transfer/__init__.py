"""Files from elsewhere: fetched, checked, unpacked, with every wait and every length bounded."""
