"""The requests a broker serves, one small class for each kind; collaborators come one by one."""
