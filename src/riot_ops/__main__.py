"""``python -m riot_ops`` runs the command ``riot-ops``."""

from riot_ops.cli.main import main

main()
