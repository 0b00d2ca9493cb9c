"""Shows colours and a progress bar on a terminal. A pipe, a file and the log of a pod get plain lines."""
