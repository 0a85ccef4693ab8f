"""DynamoDB Local on a database file."""

from __future__ import annotations

from pathlib import Path

from lakelatch.testing.servers.contract import http_status
from lakelatch.testing.servers.local import (
    CACHE_VARIABLE,
    JAVA_OPTIONS,
    LocalServer,
    fetched,
    java,
    program,
    run_fetch,
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
    """Whether the server lists its tables."""
    headers = {
        "X-Amz-Target": "DynamoDB_20120810.ListTables",
        "Content-Type": "application/x-amz-json-1.0",
        "Authorization": "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/dynamodb/aws4_request, "
        "SignedHeaders=host, Signature=0",
    }
    return http_status(host, port, "/", "POST", headers, b"{}") == 200


def fetch() -> Path:
    """The folder of DynamoDB Local's libraries, from the cache or from Maven's repository."""
    return fetched(f"dynamodb-local-{VERSION}", _copy_libraries)


def _copy_libraries(folder: Path) -> Path:
    project = folder / "pom.xml"
    project.write_text(_PROJECT)
    maven = program("mvn", f"apt-get install maven, or copy the libraries from elsewhere and set {CACHE_VARIABLE}")
    run_fetch(
        f"Maven could not fetch DynamoDB Local {VERSION}",
        [
            *(maven, "--quiet", "--batch-mode", "--file", str(project), _COPY),
            *("-DincludeScope=runtime", f"-DoutputDirectory={folder / 'lib'}"),
        ],
    )
    return folder / "lib"
