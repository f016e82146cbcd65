"""Programs and pipelines on a cluster, and the packed environment that executors need."""
