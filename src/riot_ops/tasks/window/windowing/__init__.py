"""The parts of :class:`~riot_ops.tasks.window.window.Window`."""
