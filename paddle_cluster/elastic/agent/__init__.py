"""Workers on other machines: each machine runs an agent, which starts workers there when the driver asks for them."""
