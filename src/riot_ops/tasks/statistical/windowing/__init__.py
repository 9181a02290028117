"""The parts of :class:`~riot_ops.tasks.statistical.window.Window`."""
