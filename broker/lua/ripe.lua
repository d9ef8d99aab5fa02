#!lua flags=no-writes
-- ripe: which parked requests are due to be moved to their queues, by the server's clock.
--
-- KEYS  1 later   2 parked
-- ARGV  1 how many at most
-- RESULT {{parked entry id, queue, bell, id, tenant, version named by the caller ('' = none)}, …},
--       the longest overdue first; all but the first are '' where the entry is gone
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])) do
  -- A member that is not an entry id was written by somebody else: nothing is parked under it.
  local entries = redis.pcall('XRANGE', KEYS[2], id, id)
  if entries.err and string.sub(entries.err, 1, 9) == 'WRONGTYPE' then return entries end
  local fields, version = entries[1] and entries[1][2] or {}, ''
  for i = 5, #fields, 2 do
    if fields[i] == 'version' then version = fields[i + 1] end
  end
  local place = {id, fields[2] or '', fields[4] or '', fields[6] or '', fields[8] or '', version}
  found[#found + 1] = place
end
return found
