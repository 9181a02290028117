#!/usr/bin/env python3
"""Runs the tests that need jars of Maven Central: those of Kafka against Apache Kafka itself.

    test_jars.py [--if-served]

Maven puts the jars into ``build/jars``. With ``--if-served``, a machine without Maven, or where Maven does not bring
the jars in time, prints which are missing and succeeds; tests that fail let it fail always.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JARS = ROOT / "build" / "jars"
KAFKA = "4.3.1"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>riot-ops</groupId><artifactId>test-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA}</version></dependency>
  </dependencies>
</project>
"""
#: How Maven names an artifact that it cannot bring.
ARTIFACT = re.compile(r"(?:Could not (?:find|transfer) artifact|Failure to (?:find|transfer)) (\S+)")
#: Where Maven waits for an answer for long, it is as good as none.
MAVEN_SECONDS = 600


def fetch() -> str:
    """Bring the jars; return why that cannot be, or an empty text."""
    if (JARS / f"kafka_2.13-{KAFKA}.jar").exists():
        return ""
    maven = shutil.which("mvn")
    if maven is None:
        return "Maven is not installed"
    JARS.mkdir(parents=True, exist_ok=True)
    pom = JARS.parent / "test-jars.pom.xml"
    pom.write_text(POM, encoding="utf-8")
    part = JARS.parent / "jars.part"
    shutil.rmtree(part, ignore_errors=True)
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={part}"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=MAVEN_SECONDS)
    except subprocess.TimeoutExpired:
        return f"Maven does not have the jars of Apache Kafka {KAFKA} after {MAVEN_SECONDS} s"
    if done.returncode:
        output = done.stdout + done.stderr
        named = ", ".join(dict.fromkeys(ARTIFACT.findall(output)))
        return f"Maven cannot bring {named or f'Apache Kafka {KAFKA}'}: {output.strip()[:500]}"
    shutil.rmtree(JARS)
    part.rename(JARS)
    return ""


def main() -> int:
    """Run the tests against a broker of Apache Kafka."""
    if problem := fetch():
        print(f"test-jars: not run: {problem}", flush=True)
        return 0 if "--if-served" in sys.argv else 1
    sys.path.insert(0, str(ROOT))
    from tests.jars.kafka_cluster import KafkaCluster

    with KafkaCluster(JARS) as cluster:
        environment = {**os.environ, "RIOT_OPS_TEST_KAFKA": cluster.servers, "RIOT_OPS_JARS": str(JARS)}
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not spark", "tests/connectors/kafka"]
        done = subprocess.run([*command, "tests/jars/apache_kafka_suite.py"], cwd=ROOT, env=environment, check=False)
    print(f"test-jars: {'passed' if done.returncode == 0 else 'failed'}", flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
