"""Who may do what at a broker: accounts in files, what a request needs, and the check of its signature."""
