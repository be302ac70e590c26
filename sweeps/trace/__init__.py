"""One run as a Chrome trace."""
