"""How the launchers of a job hear of each other: trainer 0's serves, the others join it."""
