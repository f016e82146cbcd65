"""TLS on the sockets of servers and clients."""
