"""A cluster as its clients see it: name servers, routes, brokers and the calls to them."""
