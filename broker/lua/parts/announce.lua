-- Write fields of a worker's hash, which is its own: a foreign key in its place gives way.
local function announce(hash, ...)
  if type(redis.pcall('HLEN', hash)) ~= 'number' then redis.call('DEL', hash) end
  redis.call('HSET', hash, ...)
end
