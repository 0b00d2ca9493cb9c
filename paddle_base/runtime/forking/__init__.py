"""Fork servers: a process with one thread has in its memory what programs need, and forks them for one client."""
