"""The contract: messages, keys, states, errors, limits. Pure: no I/O, no clock, no asyncio.

`docs/protocol.md` specifies what these modules implement; a test holds the two together.
"""
