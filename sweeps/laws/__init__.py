"""Length and seconds laws: distributions, measured lengths, traces, shipped ones."""
