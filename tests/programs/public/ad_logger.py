"""A helper module that people copy from program to program: Spark's own log, by its JVM."""


class Log4j:
    def __init__(self, spark):
        log4j = spark._jvm.org.apache.log4j
        app_name = spark.sparkContext.getConf().get("spark.app.name")
        self.logger = log4j.LogManager.getLogger("ads.examples." + app_name)

    def warn(self, message):
        self.logger.warn(message)

    def info(self, message):
        self.logger.info(message)
