"""A message in its forms: what a program sends, what a store keeps, and the bytes of each. `record` draws them."""
