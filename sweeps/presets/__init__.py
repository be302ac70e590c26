"""Real systems' modes as configurations, each with source and knobs."""
