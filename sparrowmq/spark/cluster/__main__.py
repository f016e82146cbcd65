"""The program that spark-submit runs for a ready pipeline: `sparrowmq pipeline ARGUMENTS`."""

from sparrowmq.spark.pipeline_command import pipeline

if __name__ == "__main__":
    pipeline(prog_name="sparrowmq pipeline")
