-- Streams with their groups, from the start. Those that were to end, since a version was withdrawn,
-- stay. A key of the wrong type fails in `require_streams`, before anything is created.
local function require_streams(first)
  for i = first, #KEYS do redis.call('XLEN', KEYS[i]) end
end

-- The error, if any.
local function make_stream(stream, group)
  redis.call('PERSIST', stream)
  local made = redis.pcall('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
  if made.err and string.sub(made.err, 1, 9) ~= 'BUSYGROUP' then return made end
end
