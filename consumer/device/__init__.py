"""The device process: it alone runs model code. `docs/runtime-protocol.md` specifies its pipe."""
