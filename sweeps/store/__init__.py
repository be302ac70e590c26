"""A sweep on disk: arrays, tables, journal, lock; resume, extend, verify, replay."""
