"""`sparrowmq secure`: certificates, accounts and settings of a closed cluster."""
