"""Rules, lengths and metrics of the user's own, in the general loop, in sweeps and in stores."""
