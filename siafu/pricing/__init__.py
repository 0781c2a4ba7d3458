"""Prices, and the cost of a bill. Every price has a date and a source."""
