#!lua
-- configure: change fields of a deploy record: overrides of limits, the stable version, the canary
-- and its weight, what is kept of earlier versions, the state of a roll.
--
-- Atomic because a router must never see buckets whose streams do not exist yet, nor a worker new
-- buckets without the old ones, which drain; and because of two who change what they have read, one
-- must notice that the other was first.
--
-- KEYS  1 deploy   then work streams that the new limits need
-- ARGV  1 nonce   2 number of fields   then name and value of each ('' = remove)
--       then epoch and nonce of the record that decided about them (neither: any record)
-- RESULT the new epoch, 0 when the model is not deployed, -1 where the record is another by now; an
--       error where a key is of a foreign kind: nothing was written
-- part: epoch
-- part: streams
if redis.call('HLEN', KEYS[1]) == 0 then return 0 end
local record, at = redis.call('HMGET', KEYS[1], 'epoch', 'nonce'), 3 + 2 * tonumber(ARGV[2])
if ARGV[at] and ((record[1] or '0') ~= ARGV[at] or (record[2] or '') ~= ARGV[at + 1]) then
  return -1
end
require_streams(2)
for i = 2, #KEYS do
  local fault = make_stream(KEYS[i], 'worker')
  if fault then return fault end
end
for i = 0, tonumber(ARGV[2]) - 1 do
  local name, value = ARGV[3 + 2 * i], ARGV[4 + 2 * i]
  if value == '' then redis.call('HDEL', KEYS[1], name)
  else redis.call('HSET', KEYS[1], name, value) end
end
redis.call('HSET', KEYS[1], 'nonce', ARGV[1])
return next_epoch(KEYS[1])
