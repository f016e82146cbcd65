"""The whole cluster in one process and one thread, driven by one seed."""
