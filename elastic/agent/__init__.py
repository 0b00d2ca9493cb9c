"""Workers on other machines: the agent of a machine, and the requests of the driver to the agent."""
