"""Where one machine ends: what executors need, packed, and programs and pipelines started on a cluster."""
