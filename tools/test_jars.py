#!/usr/bin/env python3
"""Runs the tests that need jars of Maven Central: Apache Kafka itself, and the JVM's own ends of Spark.

    test_jars.py [--if-served]

Maven puts the jars of Kafka into ``build/jars``; those of Spark's connector of Kafka, Delta and hadoop-aws stay in its
own folder. The tests on Spark run on the newest version for which all three are served, in the environment of
``spark_versions.py``. With ``--if-served``, a machine without Maven, or where Maven does not bring the jars in time,
prints which are missing and succeeds; tests that fail let it fail always.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import spark_versions

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
#: Versions of Spark and of the jars beside it, newest first. Delta names its jar for the version of Spark.
SPARKS = (
    ("4.3", {"spark": "4.3.0", "delta": "4.4.0", "hadoop": "3.5.0"}),
    ("4.2", {"spark": "4.2.0", "delta": "4.4.0", "hadoop": "3.5.0"}),
)
#: The jars that PySpark does not have; other versions of those that it has would take their place.
SPARK_JARS = (
    "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2,"
    "delta-spark_{version}_2.13,delta-storage,delta-kernel-api,delta-kernel-defaults,delta-kernel-unitycatalog,"
    "unitycatalog-client,unitycatalog-hadoop,hadoop-aws,bundle,analyticsaccelerator-s3"
)
DEPENDENCY = """    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions><exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>
"""
#: How Maven names an artifact that it cannot bring.
ARTIFACT = re.compile(
    r"(?:Could not (?:find|transfer) artifact|Failure to (?:find|transfer)|failed to transfer) ([\w.-]+:[\w.:-]+)"
)
#: pytest's exit code where tests have failed.
FAILED = 1
#: Where Maven waits for an answer for long, it is as good as none.
MAVEN_SECONDS = 600


def fetch() -> str:
    """Bring the jars; return why that cannot be, or an empty text."""
    if (JARS / f"kafka_2.13-{KAFKA}.jar").exists():
        return ""
    if shutil.which("mvn") is None:
        return "Maven is not installed"
    JARS.mkdir(parents=True, exist_ok=True)
    pom = JARS.parent / "test-jars.pom.xml"
    pom.write_text(POM, encoding="utf-8")
    part = JARS.parent / "jars.part"
    shutil.rmtree(part, ignore_errors=True)
    if problem := run_maven(pom, f"Apache Kafka {KAFKA}", "dependency:copy-dependencies", f"-DoutputDirectory={part}"):
        return problem
    shutil.rmtree(JARS)
    part.rename(JARS)
    return ""


def run_maven(pom: Path, what: str, *arguments: str) -> str:
    """Run a goal of Maven; return why it failed, or an empty text."""
    command = ["mvn", "-q", "-B", "-f", str(pom), *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=MAVEN_SECONDS)
    except subprocess.TimeoutExpired:
        return f"Maven does not have the jars of {what} after {MAVEN_SECONDS} s"
    if not done.returncode:
        return ""
    output = done.stdout + done.stderr
    named = ", ".join(dict.fromkeys(ARTIFACT.findall(output)))
    return f"Maven Central does not serve {named}" if named else f"Maven cannot bring {what}: {output.strip()[:500]}"


def fetch_spark(version: str, numbers: dict[str, str]) -> tuple[str, str]:
    """Return the class path of the jars for a version of Spark, and why there is none, or an empty text."""
    path = JARS.parent / f"jars-spark-{version}.path"
    if path.exists() and all(Path(jar).exists() for jar in path.read_text(encoding="utf-8").split(os.pathsep)):
        return path.read_text(encoding="utf-8"), ""
    wanted = (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", numbers["spark"]),
        ("io.delta", f"delta-spark_{version}_2.13", numbers["delta"]),
        ("org.apache.hadoop", "hadoop-aws", numbers["hadoop"]),
    )
    pom = JARS.parent / f"test-jars-spark-{version}.pom.xml"
    head, _, rest = POM.partition("    <dependency>")
    pom.write_text(
        f"{head}{''.join(DEPENDENCY.format(*one) for one in wanted)}{rest[rest.index('  </dependencies>') :]}",
        encoding="utf-8",
    )
    only = SPARK_JARS.format(version=version)
    goal = ("dependency:build-classpath", f"-Dmdep.outputFile={path}", f"-DincludeArtifactIds={only}")
    problem = run_maven(pom, f"the ends of Spark {version}", *goal)
    return ("", problem) if problem else (path.read_text(encoding="utf-8"), "")


def run_spark_ends(environment: dict[str, str]) -> int | None:
    """Run the tests of the JVM's ends on the newest Spark that has them; None if there is none."""
    for version, numbers in SPARKS:
        jars, problem = fetch_spark(version, numbers)
        if problem:
            print(f"test-jars: the ends of Spark {version}: not run: {problem}", flush=True)
            continue
        try:
            code, said = spark_versions.run_tests(version, False, ["tests/jars/spark_ends_suite.py"], {
                **environment, "RIOT_OPS_SPARK_JARS": jars,
            })  # fmt: skip
        except spark_versions.CannotMakeError as error:
            print(f"test-jars: the ends of Spark {version}: not run: {error}", flush=True)
            continue
        print(f"test-jars: the ends of Spark {version}: {said}", flush=True)
        return code
    return None


def main() -> int:
    """Run the tests against a broker of Apache Kafka, and those of Spark's ends."""
    if problem := fetch():
        print(f"test-jars: not run: {problem}", flush=True)
        return 0 if "--if-served" in sys.argv else 1
    sys.path.insert(0, str(ROOT))
    from tests.jars.kafka_cluster import KafkaCluster

    with KafkaCluster(JARS) as cluster:
        environment = {**os.environ, "RIOT_OPS_TEST_KAFKA": cluster.servers, "RIOT_OPS_JARS": str(JARS)}
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not spark", "tests/connectors/kafka"]
        command.append("tests/jars/apache_kafka_suite.py")
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        if code == FAILED:  # brokers of Java beside the tests stop for many seconds on a small machine
            print("test-jars: the tests that failed run once more", flush=True)
            code = subprocess.run([*command, "--lf"], cwd=ROOT, env=environment, check=False).returncode
        code = code or run_spark_ends(environment) or 0
    print(f"test-jars: {'failed' if code else 'passed'}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
