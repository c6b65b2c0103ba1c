"""Where training finds what it has in common with answering."""

from bertine.models.memory import keep_freed_memory

__all__ = ["keep_freed_memory"]
