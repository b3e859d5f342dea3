#!/bin/sh
# Spark has Kubernetes run this, as /opt/decom.sh, before it ends a pod: the executor tells its driver that it leaves, and
# tasks go elsewhere. It has time until terminationGracePeriodSeconds are over.
executor=$(ps -eo pid,args | awk '/[K]ubernetesExecutorBackend/ { print $1; exit }')
if [ -z "$executor" ]; then
    exit 0
fi
kill -PWR "$executor"
while kill -0 "$executor" 2>/dev/null; do
    sleep 1
done
