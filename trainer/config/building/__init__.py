"""What the functions of the config language are made of: state of a parse, names, checks of arguments."""
