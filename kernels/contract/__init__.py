"""The rollout-record contract: schemas, rules, findings."""
