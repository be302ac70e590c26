"""The sub-commands of ``lagsweep ledger``."""
