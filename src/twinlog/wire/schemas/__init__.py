"""Schemas, in the form of Kafka's message definitions, of the requests that kafka-python does not have."""
