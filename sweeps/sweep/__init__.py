"""One sweep from its spec to its dataset, in memory or in a store; or only what it would do."""
