"""`sparrowmq lake`: one program that keeps many topics as tables."""
