"""Applications around the stream graphs of Neptune."""

from riot_ops.dataflows.neptune.equipment_monitoring import equipment_monitoring

__all__ = [
    "equipment_monitoring",
]
