"""What commands do once they have checked what they can without the libraries that this needs."""
