#!lua
-- offer: add a version beside the stable one, with its streams and groups. Workers load it; requests
-- that name no version go on to the stable one.
--
-- Atomic because a router must never see a version whose streams do not exist yet.
-- KEYS  1 deploy   then the work streams of the version
-- ARGV  1 version   2 record   3 nonce
-- RESULT the new epoch, 0 where the model is not deployed
if redis.call('HEXISTS', KEYS[1], 'stable') == 0 then return 0 end
for i = 2, #KEYS do
  local made = redis.pcall('XGROUP', 'CREATE', KEYS[i], 'worker', '0', 'MKSTREAM')
  if made.err and string.sub(made.err, 1, 9) ~= 'BUSYGROUP' then return made end
end
redis.call('HSET', KEYS[1], 'version:' .. ARGV[1], ARGV[2], 'nonce', ARGV[3])
return redis.call('HINCRBY', KEYS[1], 'epoch', 1)
