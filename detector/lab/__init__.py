"""The laboratory: training, baselines, comparison, scoring and records. No scan imports it."""
