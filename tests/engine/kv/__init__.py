"""Tests of the KV store."""
