"""Access control of a broker: accounts in files, the permissions that a request needs, and its signature."""
