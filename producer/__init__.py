"""Client SDK: submit, wait, poll and map, for asyncio and for plain threads."""
