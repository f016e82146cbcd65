"""Generated wrong calls of every public function: see test_wrong_calls.py."""
