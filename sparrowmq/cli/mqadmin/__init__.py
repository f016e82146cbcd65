"""`mqadmin`: Apache's admin tool, command by command, with its options, tables and streams."""
