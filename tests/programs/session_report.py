"""Writes down all that a session and its process answer, as JSON into the file that is its first argument: of a first
session, and of one that follows spark.stop(). With "query" as the second one it runs a streaming query besides.

Each entry has the name by which the table of docs/programs.md calls it, behind "first: " or "second: ".
"""

import json
import locale
import logging
import os
import re
import sys
import tempfile
import threading
import time

from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.sql import SparkSession

VARIABLES = ["TZ", "EMPTY", "TOO_LATE", "TAKEN_BY_THE_PROGRAM"]
VARIABLES += [f"{how}_BY_THE_{who}" for how in ("SET", "CHANGED") for who in ("JOB", "PROGRAM")]

found: dict[str, str] = {}


def note(when, what, entries):
    for name, value in dict(entries).items():
        if name != "_":  # the shell's
            found[f"{when}: {what.format(name)}"] = str(value)


def of_process(when):
    note(when, "os.environ[{}]", os.environ)
    answers = {
        "os.getcwd()": os.getcwd(),
        "sys.path": sys.path,
        "sys.flags": sys.flags,
        "sys.argv": sys.argv[3:],
        "sys.stdin": sys.stdin.read(),
        "sys.stdout.encoding": sys.stdout.encoding,
        "tempfile.gettempdir()": tempfile.gettempdir(),
        "sys.getfilesystemencoding()": sys.getfilesystemencoding(),
        "locale.setlocale(LC_ALL)": locale.setlocale(locale.LC_ALL),
        "locale.getpreferredencoding()": locale.getpreferredencoding(),
        "time.tzname": time.tzname,
        "the log level of logging": [logging.getLogger(name).level for name in ("", "py4j", "pyspark")],
        "the handlers of logging": logging.getLogger().handlers,
        "threading.enumerate()": [each.name for each in threading.enumerate() if "shutdown" not in each.name],
        "threading.current_thread()": threading.current_thread().name,
        "__name__": __name__,
        "SparkSession.getActiveSession()": SparkSession.getActiveSession() is not None,
        "SparkContext._active_spark_context": SparkContext._active_spark_context is not None,
    }
    note(when, "{}", answers)


def of_session(when, spark):
    sc = spark.sparkContext
    java = sc._jvm.java.lang.System
    note(when, "{}", {row.key: row.value for row in spark.sql("SET -v").collect()} | spark.conf.getAll)
    note(f"{when}: newSession()", "{}", spark.newSession().conf.getAll)
    note(f"{when}: getConf()", "{}", sc.getConf().getAll())
    note(f"{when}: SparkConf()", "{}", SparkConf().getAll())
    text = sc._jvm.java.io.StringWriter()
    sc._jsc.hadoopConfiguration().writeXml(text)
    hadoop = re.findall("<name>(.*?)</name><value>(.*?)</value>", text.toString(), re.DOTALL)
    note(when, "hadoopConfiguration()[{}]", hadoop)
    properties = "timezone", "language", "country", "name", "home", "dir"
    names = [*(f"user.{each}" for each in properties), "file.encoding", "java.io.tmpdir"]
    note(when, "System.getProperty({})", {name: java.getProperty(name) for name in names})
    note(when, "System.getenv({})", {name: java.getenv(name) for name in VARIABLES})
    root = sc._jvm.org.apache.logging.log4j.LogManager.getRootLogger()
    answers = {
        "sc.appName": sc.appName,
        "sc._jsc.appName()": sc._jsc.appName(),
        "sc.applicationId": sc.applicationId,
        "sc.master": sc.master,
        "sc.defaultParallelism": sc.defaultParallelism,
        "sc.uiWebUrl": sc.uiWebUrl,
        "sc.sparkUser()": sc.sparkUser(),
        "sc.environment": sc.environment,
        "sc.pythonExec": sc.pythonExec,
        "sc.listFiles": sc.listFiles,
        "sc.getCheckpointDir()": sc.getCheckpointDir(),
        "sc.getJobTags()": sc.getJobTags(),
        "sc.getLocalProperty()": [sc.getLocalProperty(name) for name in ("mine", "spark.jobGroup.id")],
        "sc.statusTracker().getJobIdsForGroup()": sc.statusTracker().getJobIdsForGroup(),
        "the ids of RDDs": sc.parallelize([1]).id(),
        "persistent RDDs": len(sc._jsc.getPersistentRDDs()),
        "the level of Log4j": root.getLevel().toString(),
        "SparkFiles.getRootDirectory()": SparkFiles.getRootDirectory(),
        "catalog.listTables()": [each.name for each in spark.catalog.listTables()],
        "catalog.listTables('global_temp')": [each.name for each in spark.catalog.listTables("global_temp")],
        "catalog.listDatabases()": [each.name for each in spark.catalog.listDatabases()],
        "catalog.listFunctions()": sorted(each.name for each in spark.catalog.listFunctions()),
        "catalog.listCatalogs()": [each.name for each in spark.catalog.listCatalogs()],
        "catalog.currentCatalog()": (spark.catalog.currentCatalog(), spark.catalog.currentDatabase()),
        "SELECT current_timezone()": spark.sql("SELECT current_timezone()").first()[0],
        "cached tables": not spark._jsparkSession.sharedState().cacheManager().isEmpty(),
        "spark.streams.active": spark.streams.active,
    }
    note(when, "{}", answers)
    note(when, "{} in a task", sc.parallelize([0], 1).mapPartitions(of_task).first())


def of_task(_):
    import os
    import sys
    import time

    answers = {f"os.environ[{name}]": value for name, value in os.environ.items() if name != "_"}
    return [
        answers | {"os.getcwd()": os.getcwd(), "sys.path": str(sys.path), "time.tzname": str(time.tzname)}
    ]


# Set before the session, these are there for tasks, too.
os.environ["SET_BY_THE_PROGRAM"] = "1"
os.environ["CHANGED_BY_THE_PROGRAM"] += ", changed"
os.environ.pop("TAKEN_BY_THE_PROGRAM")
of_process("before")
note("before: SparkConf()", "{}", SparkConf().getAll())
builder = SparkSession.builder.appName("mine").config("of.the.builder", "1")
spark = builder.config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
os.environ["TOO_LATE"] = "1"
of_process("first")
of_session("first", spark)
again = SparkSession.builder.appName("other").config("spark.sql.shuffle.partitions", 9).getOrCreate()
note(
    "again", "{}", {name: again.conf.get(name) for name in ("spark.app.name", "spark.sql.shuffle.partitions")}
)
note("again", "{}", {"the session": again is spark, "sc.appName": again.sparkContext.appName})

# All of this is to be gone.
spark.conf.set("spark.sql.ansi.enabled", False)
spark.conf.set("of.my.own", "1")
spark.sql("CREATE TEMPORARY VIEW a_view AS SELECT 1 AS a")
spark.range(1).createGlobalTempView("for_all")
spark.sql("CREATE DATABASE a_database")
spark.udf.register("a_function", lambda: 1)
spark.range(5).cache().count()
spark.sparkContext.parallelize([1]).cache().count()
spark.sparkContext.setLocalProperty("mine", "1")
spark.sparkContext.setJobGroup("a group", "that is mine")
spark.sparkContext.addJobTag("tag")
spark.sparkContext.setCheckpointDir(sys.argv[1] + ".checkpoints")
spark.sparkContext._jsc.hadoopConfiguration().set("of.hadoop", "1")
spark.stop()
of_process("stopped")
second = SparkSession.builder.config("spark.sql.shuffle.partitions", 7).config("of.mine", "x").getOrCreate()
note("second", "{}", {"the session": second is spark})
of_session("second", second)
if sys.argv[2] == "query":
    numbers = second.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = numbers.writeStream.queryName("nowhere").format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
