#!lua
-- configure: override limits of a deployed model, or take overrides back.
--
-- Atomic because a router must never see buckets whose streams do not exist yet, nor a worker new
-- buckets without the old ones, which drain.
--
-- KEYS  1 deploy   then work streams that the new limits need
-- ARGV  1 nonce   2 number of fields   then name and value of each ('' = remove)
-- RESULT the new epoch, 0 when the model is not deployed
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
for i = 2, #KEYS do
  local made = redis.pcall('XGROUP', 'CREATE', KEYS[i], 'worker', '0', 'MKSTREAM')
  if made.err and string.sub(made.err, 1, 9) ~= 'BUSYGROUP' then return made end
end
for i = 0, tonumber(ARGV[2]) - 1 do
  local name, value = ARGV[3 + 2 * i], ARGV[4 + 2 * i]
  if value == '' then redis.call('HDEL', KEYS[1], name)
  else redis.call('HSET', KEYS[1], name, value) end
end
redis.call('HSET', KEYS[1], 'nonce', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'epoch', 1)
