"""The applications of Neptune's stream graphs."""

from riot_ops.dataflows.neptune.equipment_monitoring import equipment_monitoring

__all__ = [
    "equipment_monitoring",
]
