"""What Prometheus reads of a server: settings, the page of one visit, the loop's own figures, and the port."""
