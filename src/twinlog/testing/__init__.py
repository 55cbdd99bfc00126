"""Real Kafka for tests and demos: brokers, a network proxy in front of them, load and a checker.

`kafka.LocalKafka` runs stock brokers on a machine that has only Python. Nobody but tests, benchmarks and the
demo imports this folder; it may import everything below `service`.
"""
