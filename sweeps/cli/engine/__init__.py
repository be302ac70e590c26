"""The sub-commands of ``lagsweep engine``."""
