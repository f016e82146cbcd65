"""Commands that ask and change a cluster."""
