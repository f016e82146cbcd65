"""What a rig needs and a machine may lack."""


class NotHere(Exception):
    """This machine cannot do that; the text says what is missing."""
