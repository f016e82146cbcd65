"""What spark-submit is given as its program when a ready pipeline is to run: `sparrowmq pipeline ARGUMENTS`."""

from sparrowmq.spark.pipeline_command import pipeline

if __name__ == "__main__":
    pipeline(prog_name="sparrowmq pipeline")
