"""Logs of real runs as they are: steps, engine samples and lengths, with what was found and left out."""
