"""The network addresses of programs: the hosts and ports in their flags, and the interfaces of this machine."""
