"""A message in its forms: as a program sends it, as a store keeps it, and the bytes of each. `record` draws them."""
