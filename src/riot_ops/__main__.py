"""``python -m riot_ops`` does what ``riot-ops`` does."""

from riot_ops.cli.main import main

main()
