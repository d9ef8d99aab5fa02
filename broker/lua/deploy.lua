#!lua
-- deploy: make a version the stable one of its model, with its streams and groups. All requests that
-- name no version go to it: there is no canary any more.
--
-- Atomic because a router must never see a version whose streams do not exist yet, and because of two
-- who change what they have read, one must notice that the other was first. What was kept of a model
-- that was undeployed stays with it.
--
-- KEYS  1 deploy   2 tenants   3 mark of an undeployed model
--       4 workers   5 lost   6 journal   7 dead letters
--       then ingress streams, one a tenant, then work streams
-- ARGV  1 version   2 record   3 nonce   4 number of tenants   then the tenants
--       then epoch and nonce of the record that decided about it (neither: any record, or none)
-- RESULT the new epoch, -1 where the record is another by now; an error where a key has the wrong
--       type: nothing was written
-- part: epoch
-- part: portions
-- part: streams
local tenants = tonumber(ARGV[4])
local record = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
local epoch, nonce = ARGV[5 + tenants], ARGV[6 + tenants]
if epoch and ((record[1] or '0') ~= epoch or (record[2] or '') ~= nonce) then return -1 end
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
