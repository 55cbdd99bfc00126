"""Settings: Java properties, client and mirror configs, topic patterns, secrets by reference.

Imports only errors and names.
"""
