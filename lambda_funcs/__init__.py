"""The Lambda function that computes tensor tasks, and an emulation of AWS Lambda on this machine.

``handler`` is the function; ``local_pool`` starts emulated environments.
"""
