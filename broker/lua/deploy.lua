#!lua
-- deploy: make a version the stable one of its model, with its streams and groups. All requests that
-- name no version go to it: there is no canary any more.
--
-- Atomic because a router must never see a version whose streams do not exist yet. What was kept of
-- a model that was undeployed stays with it.
--
-- KEYS  1 deploy   2 tenants   3 mark of an undeployed model
--       4 workers   5 lost   6 journal   7 dead letters
--       then ingress streams, one a tenant, then work streams
-- ARGV  1 version   2 record   3 nonce   4 number of tenants   then the tenants
-- RESULT the new epoch; an error where a key has the wrong type: nothing was written
-- part: epoch
-- part: portions
-- part: streams
local tenants = tonumber(ARGV[4])
redis.call('HLEN', KEYS[1])
redis.call('SCARD', KEYS[2])
require_streams(8)
for i = 8, #KEYS do
  local fault = make_stream(KEYS[i], i <= 7 + tenants and 'router' or 'worker')
  if fault then return fault end
end
redis.call('DEL', KEYS[3])
for i = 4, 7 do redis.call('PERSIST', KEYS[i]) end
in_portions('SADD', KEYS[2], ARGV, 5, 4 + tenants)
redis.call('HSETNX', KEYS[1], 'intake', 'open')
redis.call('HDEL', KEYS[1], 'canary', 'kept:' .. ARGV[1], 'workers:' .. ARGV[1])
redis.call('HSET', KEYS[1], 'stable', ARGV[1], 'version:' .. ARGV[1], ARGV[2], 'nonce', ARGV[3])
return next_epoch(KEYS[1])
