"""The servers of the weights: they sum gradients, step the optimiser, and keep the versions that tasks still need.

``server`` is the main loop; ``replica`` decides what it does.
"""
