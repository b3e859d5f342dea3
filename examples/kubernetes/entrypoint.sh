#!/bin/sh
# The entry point of an image for executors and for the server: Spark asks for pods with the argument "executor" and says
# the rest in the environment. PySpark as pip installs it brings the jars, and no entry point.
set -eu

if [ "${1:-}" != executor ]; then
    exec slotwise "$@"
fi

python=${PYSPARK_PYTHON:-python3}
jars=$("$python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')/jars

# SPARK_JAVA_OPT_0 and so on: each is one argument, whatever is in it.
set --
number=0
while eval "[ -n \"\${SPARK_JAVA_OPT_$number+set}\" ]"; do
    eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
    number=$((number + 1))
done

# slf4j comes first, as on a Spark worker: Java takes an archive of class data only with the class path that it was made of.
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "$@" \
    "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "$(echo "$jars"/slf4j-api-*.jar):$jars/*${SPARK_CLASSPATH:+:$SPARK_CLASSPATH}" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
