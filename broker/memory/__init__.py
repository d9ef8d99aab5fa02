"""The in-memory twin of the server: the contract's commands and scripts inside one process.

For tests of a user's model, for simulation, and for whoever wants a fleet without Redis. It knows
the commands that `broker` sends and no others, and passes the same suite as the real servers
(`tests/contract/test_broker_suite.py`).
"""
