"""Paired prompts of two tenants: what one key had computed must be found again by that key, and by no other (I7)."""
