"""The server of one graph partition: gathers and scatters rows; threads, a GPU or Lambdas compute tensor tasks.

``server`` is the main loop; ``partition`` and ``scheduler`` decide what it does.
"""
