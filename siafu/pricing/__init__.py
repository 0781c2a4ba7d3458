"""Prices, the cost of a bill, and the meter that keeps a run within its budget. Every price has a date and a source."""
