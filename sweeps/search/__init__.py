"""The best setting among ranges, found with few runs and a stated probability."""
