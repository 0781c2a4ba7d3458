"""The cost of training: predicted before it starts, judged by value = 1 / (time x cost), reported afterwards."""
