"""Probes on a schedule: what is due is run within a budget, remembered across crashes, and told to Prometheus."""
