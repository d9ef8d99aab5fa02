#!lua flags=allow-oom
-- join: enter a new worker among the living. A name that was ever used is refused, so that a
-- buried identity cannot come back. Of a model that is not deployed nobody is among the living, since
-- nobody would be removed again.
--
-- KEYS  1 workers   2 lost   3 hash of the worker   4 deploy
-- ARGV  1 worker   2 TTL of the hash ms   then fields and values of the hash
-- RESULT 1 joined, 0 the name is alive or lost, or the model is not deployed
-- part: announce
if redis.call('ZSCORE', KEYS[1], ARGV[1]) or redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then
  return 0
end
if redis.call('EXISTS', KEYS[4]) == 0 then return 0 end
redis.call('ZADD', KEYS[1], 1, ARGV[1])
if #ARGV > 2 then announce(KEYS[3], unpack(ARGV, 3)) end
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return 1
