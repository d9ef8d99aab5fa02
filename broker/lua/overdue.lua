#!lua flags=no-writes
-- overdue: which open requests are past their deadline, by the server's clock.
--
-- KEYS  1 due
-- ARGV  1 how many at most
-- RESULT members of due, the longest overdue first
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
