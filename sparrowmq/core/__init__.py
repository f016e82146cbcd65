"""Small modules that every part needs: text and numbers of others, logs, small files, limits of the process."""
