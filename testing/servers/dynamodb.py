"""DynamoDB Local on a database file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from lakelatch.testing.fetching import run_fetch
from lakelatch.testing.servers.contract import http_status
from lakelatch.testing.servers.local import (
    CACHE_VARIABLE,
    JAVA_OPTIONS,
    LocalServer,
    fetched,
    java,
    program,
)

VERSION = "3.0.0"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_PROJECT = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lakelatch</groupId>
  <artifactId>test-servers</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>software.amazon.dynamodb</groupId>
      <artifactId>DynamoDBLocal</artifactId>
      <version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


class LocalDynamoDb(LocalServer):
    """One database for all credentials and regions; `arguments` are those of DynamoDB Local.

    It is fetched with Maven if the cache does not have it. Tables are there as soon as they are made, expired items are
    never deleted, and capacity is never exceeded, unlike in the real service.
    """

    name = "dynamodb"

    def command(self) -> list[str]:
        libraries = fetch()
        return [
            *(java(), *JAVA_OPTIONS, f"-Dsqlite4java.library.path={libraries}", "-cp", f"{libraries}/*"),
            "software.amazon.dynamodb.services.local.main.ServerRunner",
            *("-port", str(self.port), "-sharedDb", "-dbPath", str(self.data), "-disableTelemetry"),
        ]

    def answers(self) -> bool:
        return dynamodb_answers(self.host, self.port)


def dynamodb_answers(host: str, port: int) -> bool:
    """Whether the server lists its tables, and makes one, writes to it with a condition and deletes it in good time.

    The first of these that a server is asked for may take seconds, longer than a client waits who has a short lease.
    """
    if _status(host, port, "ListTables", {}) != 200:
        return False
    table = {"TableName": "lakelatch-warm-up"}
    keys = {
        "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    put = {"Item": {"k": {"S": "k"}}, "ConditionExpression": "attribute_not_exists(v)"}
    _status(host, port, "CreateTable", {**table, **keys})  # it is there if an earlier look had no answer
    written = _status(host, port, "PutItem", {**table, **put}) == 200
    return _status(host, port, "DeleteTable", table) == 200 and written


def _status(host: str, port: int, operation: str, said: Mapping[str, object]) -> int:
    headers = {
        "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/dynamodb/aws4_request, "
        "SignedHeaders=host, Signature=0",
    }
    return http_status(host, port, "/", "POST", headers, json.dumps(said).encode())


def fetch() -> Path:
    """The folder of DynamoDB Local's libraries, from the cache or from Maven's repository."""
    return fetched(f"dynamodb-local-{VERSION}", _copy_libraries)


def _copy_libraries(folder: Path) -> Path:
    project = folder / "pom.xml"
    project.write_text(_PROJECT)
    maven = program("mvn", f"apt-get install maven, or copy the libraries from elsewhere and set {CACHE_VARIABLE}")
    run_fetch(
        f"DynamoDB Local {VERSION} (46 MB)",
        [
            *(maven, "--batch-mode", "--file", str(project), _COPY),
            *("-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"),
        ],
        r"Downloaded from .*\((?P<size>[0-9.]+) (?P<unit>[kMG]?B) at ",
    )
    return folder / "lib"
