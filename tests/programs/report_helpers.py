"""What report.py needs besides Spark."""

from pyspark.sql.streaming import StreamingQueryListener


def settings():
    return {"spark.sql.shuffle.partitions": "7", "spark.sql.session.timeZone": "UTC"}


def category(page):
    return "even" if int(page.removeprefix("page-")) % 2 == 0 else "odd"


def read_events(spark, folder):
    schema = "id BIGINT, visit STRING, page STRING, amount BIGINT, at TIMESTAMP"
    events = spark.readStream.schema(schema).option("maxFilesPerTrigger", 20).json(str(folder))
    return events.withWatermark("at", "10 seconds")


class Progress(StreamingQueryListener):
    def __init__(self, log):
        self.log = log

    def onQueryStarted(self, event):
        self.log.info("started %s", event.name)

    def onQueryProgress(self, event):
        self.log.info("batch %s: %s rows", event.progress.batchId, event.progress.numInputRows)

    def onQueryIdle(self, event):
        pass

    def onQueryTerminated(self, event):
        self.log.info("terminated: %s", event.exception or "no error")
