"""Sockets: sessions around the sans-IO connection, servers that accept them, pools that open them, and dispatch."""
