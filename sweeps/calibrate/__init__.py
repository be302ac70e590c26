"""From step logs of a run to a configuration that predicts it, and what other settings would change."""
