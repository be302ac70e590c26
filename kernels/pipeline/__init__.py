"""The two event loops: a lean one for the core, a general one for every option, and their summaries."""
