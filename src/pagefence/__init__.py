"""PageFence keeps tenants apart in shared LLM inference, and proves it."""

__version__ = "0.1.0"
