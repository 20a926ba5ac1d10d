"""Thousands of short requests beside each other, of which many hang up: does any answer get what belongs to another?"""
