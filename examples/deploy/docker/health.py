"""Whether a container works: its live page answers, whatever it answers to someone without the token."""

from __future__ import annotations

import http.client
import os
import sys

ADDRESS = os.environ.get("HEALTH_ADDRESS", "127.0.0.1:8080")


def healthy(address: str = ADDRESS) -> bool:
    """Whether a server answers at an address, but with no error of its own."""
    connection = http.client.HTTPConnection(address, timeout=3)
    try:
        connection.request("HEAD", "/")
        return connection.getresponse().status < http.client.INTERNAL_SERVER_ERROR
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(not healthy())
