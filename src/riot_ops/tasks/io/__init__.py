"""Tasks that read from and write to stores and brokers, and pack archives."""
