#!lua flags=allow-oom
-- prune: forget routers that have read nothing for long and have nothing pending.
--
-- Atomic because removing a consumer throws its pending entries away: the look and the removal
-- must be one step. A router that is alive after all is entered again by its next read.
--
-- KEYS  1 ingress stream
-- ARGV  1 idle time after which a router is forgotten, ms
-- RESULT how many were forgotten
local consumers = redis.pcall('XINFO', 'CONSUMERS', KEYS[1], 'router')
if consumers.err then return 0 end
local gone = 0
for _, consumer in ipairs(consumers) do
  local facts = {}
  for i = 1, #consumer, 2 do facts[consumer[i]] = consumer[i + 1] end
  if facts.pending == 0 and facts.idle > tonumber(ARGV[1]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], 'router', facts.name)
    gone = gone + 1
  end
end
return gone
