"""`paddle completion` prints a script by which a shell completes the commands and flags of this project."""
