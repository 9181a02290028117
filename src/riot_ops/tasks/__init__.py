"""The operators: one task per file."""

from riot_ops.task import KeyedTask, StatelessTask, Task
from riot_ops.tasks.kalman_filter import KalmanFilter

__all__ = ["KalmanFilter", "KeyedTask", "StatelessTask", "Task"]
