#!lua flags=allow-oom
-- leave: a worker goes by its own will. What it may still hold is recovered by its peers from
-- `lost` at once, without waiting for a lease.
--
-- One that is not among the living any more was buried, and its hash tells peers what was in its
-- device process; or somebody removed `workers`, and only its own call says that it is lost.
--
-- KEYS  1 workers   2 lost   3 hash of the worker   4 bell of the worker   5 deploy
-- ARGV  1 worker
-- RESULT 1 left, 0 was gone already
redis.call('SCARD', KEYS[2])  -- before anything is written: it may have the wrong type
local left = redis.call('ZREM', KEYS[1], ARGV[1])
if redis.call('EXISTS', KEYS[5]) == 1 then redis.call('SADD', KEYS[2], ARGV[1]) end
if left == 1 then redis.call('DEL', KEYS[3]) end
redis.call('DEL', KEYS[4])
return left
