#!lua flags=allow-oom
-- bury: declare a worker dead, if its counter is still the one that stood still for a lease.
--
-- Atomic because a beat that comes in between must win. A buried name never returns: its beats get
-- 0, and `join` refuses it. Its hash is kept a while, for it names what was in its device process.
--
-- KEYS  1 workers   2 lost   3 hash of the worker   4 deploy
-- ARGV  1 worker   2 the counter seen   3 how long its hash is kept, ms
-- RESULT 1 buried, 0 alive or gone already
redis.call('SCARD', KEYS[2])  -- before anything is written: it may have the wrong type
local counter = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not counter or tonumber(counter) ~= tonumber(ARGV[2]) then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
-- Of a model that was undeployed, nobody would remove it again.
if redis.call('EXISTS', KEYS[4]) == 1 then redis.call('SADD', KEYS[2], ARGV[1]) end
redis.call('PEXPIRE', KEYS[3], ARGV[3])
return 1
