#!/bin/sh
# Entry point of the image: runs a command of eomirror, or an executor of Spark.
#
# Spark starts its executors on Kubernetes with the argument `executor`, and with the SPARK_* variables below.
set -eu

if [ "${1-}" != executor ]; then
    exec eomirror "$@"
fi

spark=$(python3 -c 'import pyspark; print(pyspark.__path__[0])')
set --
number=0
while eval "[ -n \"\${SPARK_JAVA_OPT_$number-}\" ]"; do
    eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
    number=$((number + 1))
done
exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}$spark/jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
