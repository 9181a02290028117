#!/usr/bin/env bash
# Adds job.py as a step to an EMR cluster with Spark 4.0 or later (release emr-spark-8.0.0); environment.tar.gz of pack.sh and job.py lie in the bucket.
# usage: submit.sh CLUSTER_ID s3://bucket/stats
set -euo pipefail
cluster=${1:?usage: submit.sh CLUSTER_ID BASE_URI}
base=${2:?usage: submit.sh CLUSTER_ID BASE_URI}
arguments=(
  spark-submit
  --deploy-mode cluster
  --num-executors 2
  --executor-cores 2
  --executor-memory 2g
  --driver-memory 2g
  --archives "$base/environment.tar.gz#environment"
  --conf spark.executor.memoryOverhead=2g
  --conf spark.sql.shuffle.partitions=4
  --conf spark.locality.wait=100ms
  --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python
  --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python
  "$base/job.py"
  --files "$base/lines"
  --checkpoint "$base/checkpoint"
  --out "$base/results"
  --trigger 10s
)
joined=$(IFS=,; echo "${arguments[*]}")
exec aws emr add-steps --cluster-id "$cluster" \
  --steps "Type=CUSTOM_JAR,Name=stats,ActionOnFailure=CONTINUE,Jar=command-runner.jar,Args=[$joined]"
