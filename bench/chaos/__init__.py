"""Rigs that break what a broker stands on, and count what it kept of its promises: `./run chaos NAME`.

A rig is a file here: the first line of its docstring is the question that it answers, and `play` answers it:

    def play(rounds: int, seed: int, folder: Path) -> Outcome

Each says one line of JSON (outcome.py). Short forms of all of them are tests.
"""
