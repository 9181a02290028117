"""``python -m riot_ops`` does what ``riot-ops`` does."""

from riot_ops.command.cli import main

main()
