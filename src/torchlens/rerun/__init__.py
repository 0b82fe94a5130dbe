"""Put the values of another forward pass into a log."""
