"""`paddle doctor`: what this machine or pod has and lacks, with the cost of each lack and what to do."""
