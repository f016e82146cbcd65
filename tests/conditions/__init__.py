"""Everything that can be wrong with a cluster: brought about, seen and ended by its remedy, with real processes."""
