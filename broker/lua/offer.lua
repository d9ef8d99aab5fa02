#!lua
-- offer: add a version beside the stable one, with its streams and groups. Workers load it; requests
-- that name no version go to the stable one.
--
-- Atomic because a router must never see a version whose streams do not exist yet.
-- KEYS  1 deploy   then the work streams of the version
-- ARGV  1 version   2 record   3 nonce
-- RESULT the new epoch, 0 where the model is not deployed; an error where a key is of a foreign
--       kind: nothing was written
-- part: epoch
-- part: streams
if redis.call('HEXISTS', KEYS[1], 'stable') == 0 then return 0 end
require_streams(2)
for i = 2, #KEYS do
  local fault = make_stream(KEYS[i], 'worker')
  if fault then return fault end
end
redis.call('HDEL', KEYS[1], 'kept:' .. ARGV[1])
redis.call('HSET', KEYS[1], 'version:' .. ARGV[1], ARGV[2], 'nonce', ARGV[3])
return next_epoch(KEYS[1])
