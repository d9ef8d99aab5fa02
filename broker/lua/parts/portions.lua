-- Run a command on any number of values: Lua unpacks 8,000 at most. A portion is even, so that
-- pairs stay together.
local function in_portions(command, key, values, first, last)
  for from = first, last, 1000 do
    redis.call(command, key, unpack(values, from, math.min(from + 999, last)))
  end
end
