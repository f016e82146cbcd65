"""Tables that pipelines write: the shape of rows, files of a batch, parts of stored logs."""
