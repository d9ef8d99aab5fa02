#!lua flags=allow-oom
-- beat: say "still here" by moving the worker's counter. No clock is involved.
-- Runs when memory is full, or nothing that frees memory could run.
--
-- KEYS  1 workers   2 hash of the worker
-- ARGV  1 worker   2 TTL of the hash ms   then fields and values that have changed
-- RESULT the new counter, 0 when the worker is no longer among the living
-- part: announce
local counter = redis.call('ZADD', KEYS[1], 'XX', 'INCR', 1, ARGV[1])
if not counter then return 0 end
counter = tonumber(counter)
-- Written by somebody else: no beat would move it, or its worker would count as gone.
if counter < 1 or counter >= 2 ^ 53 or counter % 1 ~= 0 then
  counter = 1
  redis.call('ZADD', KEYS[1], counter, ARGV[1])
end
if #ARGV > 2 then announce(KEYS[2], unpack(ARGV, 3)) end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return counter
