"""The only code that knows Redis: connections, Lua scripts, one typed command per transition."""
