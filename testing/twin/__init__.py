"""The in-memory twin of the server: the contract's commands and scripts inside one process.

For tests of a user's model and for simulation. It knows the commands that `broker` and its scripts
send and no others, runs the scripts that ship, and passes the same suite as the real servers
(`tests/contract/test_broker_suite.py`).
"""
