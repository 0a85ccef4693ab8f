"""Requests to the marker server and its answers, changed or made up by somebody on the network."""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from early_writes import GROUP
from one_table import Table
from served_writes import HOST, authorization, served

from lakelatch.transactions.early.server_client import (
    MARKERS_PATH,
    MarkerClient,
    ServerAddress,
    ServerLost,
    signed_answer,
)

MARKER = f"p/.{GROUP}_1.log.1_0-0-0.marker.CREATE"


def test_a_request_that_was_changed_on_its_way_opens_nothing(table: Table) -> None:
    with served(table, None) as (writer,):
        said, place = json.dumps({"id": "one", "markers": []}), writer.place
        signed = authorization(place.token, said)
        assert place.token not in signed
        connection = http.client.HTTPConnection(place.host, place.port, timeout=30)
        wanted = [(said, 200), (said.replace("[]", f'["{MARKER}"]'), 401), (said, 200)]
        for text, status in wanted:
            connection.request("POST", MARKERS_PATH, text, {"Authorization": signed})
            response = connection.getresponse()
            assert (response.status, b"counts" in response.read()) == (status, status == 200)
        connection.close()
        assert writer.lines() == []


class Forger(BaseHTTPRequestHandler):
    """Says of every file that it may be written, as the answer to another request."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = b'{"counts": true}'
        self.send_response(200)
        self.send_header("X-Lakelatch-Signature", signed_answer("the token", b"another request", answer))
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def test_an_answer_of_somebody_else_is_not_believed(table: Table) -> None:
    with HTTPServer((HOST, 0), Forger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            client = MarkerClient(ServerAddress(HOST, server.server_port, "the token"), deadline_s=0.2)
            with pytest.raises(ServerLost, match="not signed"):
                client.ask([MARKER])
        finally:
            server.shutdown()
            thread.join()
