"""A small real model in two processes: sampled, trained, saved, timed, and held against a prediction."""
