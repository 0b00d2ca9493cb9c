"""Workers on other machines: the agent that runs there, and what the driver says to it."""
