#!/usr/bin/env bash
# Submits job.py to YARN, with the environment that pack.sh has packed; Spark 4.0 or later, Python at the same place on all nodes.
# usage: submit.sh hdfs://name-node/stats
set -euo pipefail
base=${1:?usage: submit.sh BASE_URI}
exec spark-submit \
  --master yarn \
  --deploy-mode cluster \
  --name stats \
  --num-executors 2 \
  --executor-cores 2 \
  --executor-memory 2g \
  --driver-memory 2g \
  --archives environment.tar.gz#environment \
  --conf spark.executor.memoryOverhead=2g \
  --conf spark.sql.shuffle.partitions=4 \
  --conf spark.locality.wait=100ms \
  --conf spark.yarn.maxAppAttempts=10 \
  --conf spark.yarn.am.attemptFailuresValidityInterval=1h \
  --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
  --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python \
  job.py \
  --files "$base/lines" \
  --checkpoint "$base/checkpoint" \
  --out "$base/results" \
  --trigger 10s
