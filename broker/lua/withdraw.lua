#!lua flags=allow-oom
-- withdraw: take a version that is not the stable one out of the record, once it has no work left.
-- Its streams stay for a while, empty: workers may ask them until they have seen the new record.
--
-- Atomic because nothing may be placed between the look at the streams and the removal.
-- KEYS  1 deploy   then the work streams of the version
-- ARGV  1 version   2 how long its streams stay, ms
-- RESULT 0 withdrawn, else how many entries are left; -1 where it is the stable version
-- part: epoch
if redis.call('HGET', KEYS[1], 'stable') == ARGV[1] then return -1 end
local left = 0
for i = 2, #KEYS do left = left + redis.call('XLEN', KEYS[i]) end
if left > 0 then return left end
if redis.call('HDEL', KEYS[1], 'version:' .. ARGV[1]) == 1 then
  redis.call('HDEL', KEYS[1], 'draining:' .. ARGV[1])
  next_epoch(KEYS[1])
end
for i = 2, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
return 0
