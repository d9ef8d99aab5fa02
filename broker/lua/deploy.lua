#!lua
-- deploy: make a version the stable one of its model, with its streams and groups.
--
-- Atomic because a router must never see a version whose streams do not exist yet.
-- KEYS  1 deploy   2 tenants   3 mark of an undeployed model
--       then ingress streams, one a tenant, then work streams
-- ARGV  1 version   2 record   3 nonce   4 number of tenants   then the tenants
-- RESULT the new epoch
local tenants = tonumber(ARGV[4])
redis.call('DEL', KEYS[3])
for i = 4, #KEYS do
  local group = i <= 3 + tenants and 'router' or 'worker'
  local made = redis.pcall('XGROUP', 'CREATE', KEYS[i], group, '0', 'MKSTREAM')
  if made.err and string.sub(made.err, 1, 9) ~= 'BUSYGROUP' then return made end
end
redis.call('SADD', KEYS[2], unpack(ARGV, 5, 4 + tenants))
redis.call('HSETNX', KEYS[1], 'intake', 'open')
redis.call('HSET', KEYS[1], 'stable', ARGV[1], 'version:' .. ARGV[1], ARGV[2], 'nonce', ARGV[3])
return redis.call('HINCRBY', KEYS[1], 'epoch', 1)
