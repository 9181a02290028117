"""The seven programs of StreamBench."""
