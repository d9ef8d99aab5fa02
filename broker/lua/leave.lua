#!lua flags=allow-oom
-- leave: a worker goes by its own will. What it may still hold is recovered by its peers from
-- `lost` at once, without waiting for a lease.
--
-- KEYS  1 workers   2 lost   3 hash of the worker   4 bell of the worker
-- ARGV  1 worker
-- RESULT 1 left, 0 was gone already
local left = redis.call('ZREM', KEYS[1], ARGV[1])
if left == 1 then redis.call('SADD', KEYS[2], ARGV[1]) end
redis.call('DEL', KEYS[3], KEYS[4])
return left
