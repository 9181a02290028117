"""A REST catalogue of Iceberg tables for tests: the calls that sink and source make, over a catalogue in SQLite."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

TOKEN = "pa55word"
STATUS = {NamespaceAlreadyExistsError: 409, NoSuchTableError: 404, CommitFailedException: 409}


class RestCatalog:
    """Serves the catalogue on a free loopback port; use it in a ``with`` block."""

    def __init__(self, folder: Path) -> None:
        self.backend = SqlCatalog("default", uri=f"sqlite:///{folder}/rest.db", warehouse=f"file://{folder}/lake")
        self.conflicts = 0  # commits to refuse, as if another writer was faster
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, found = 200, "{}"
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, found = 401, _error(401, "NotAuthorizedException", "not authorized")
                else:
                    try:
                        parts = self.path.partition("?")[0].strip("/").split("/")[1:]
                        found = outer.answer(self.command, parts, body)
                    except tuple(STATUS) as error:
                        status = STATUS[type(error)]
                        found = _error(status, type(error).__name__, str(error))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(found.encode())))
                self.end_headers()
                self.wfile.write(found.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url: str = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RestCatalog:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, verb: str, parts: list[str], body: bytes) -> str:
        """Return the JSON of one call, by the parts of its path after ``v1``."""
        if parts == ["config"]:
            return "{}"
        if parts == ["namespaces"] and verb == "POST":
            name = tuple(json.loads(body)["namespace"])
            self.backend.create_namespace(name)
            return json.dumps({"namespace": name, "properties": {}})
        namespace = tuple(parts[1].split("\x1f"))
        if len(parts) == 3 and verb == "POST":
            given = {"location": None, "partition-spec": None, "write-order": None} | json.loads(body)
            return self._create(namespace, CreateTableRequest.model_validate(given))
        identifier = (*namespace, parts[3])
        if verb == "POST":
            if self.conflicts:
                self.conflicts -= 1
                raise CommitFailedException("another writer was faster")
            request = CommitTableRequest.model_validate_json(body)
            table = SimpleNamespace(name=lambda: identifier)
            made = self.backend.commit_table(table, request.requirements, request.updates)
            return _table(made.metadata_location, made.metadata)
        found = self.backend.load_table(identifier)
        return _table(found.metadata_location, found.metadata)

    def _create(self, namespace: tuple[str, ...], request: CreateTableRequest) -> str:
        made = self.backend._create_staged_table(
            (*namespace, request.name),
            request.table_schema,
            request.location,
            request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
            request.write_order or UNSORTED_SORT_ORDER,
            request.properties,
        )
        return _table(made.metadata_location, made.metadata)


def _table(location: str, metadata: Any) -> str:
    return json.dumps({"metadata-location": location, "metadata": json.loads(metadata.model_dump_json())})


def _error(status: int, kind: str, message: str) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "code": status}})
