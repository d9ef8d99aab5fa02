#!lua flags=allow-oom
-- withdraw: take a version that requests without a version cannot reach out of those offered, once it
-- has no work left; its record may be kept for going back to it.
-- Its streams stay for a while, empty: workers may ask them until they have seen the new record.
--
-- Atomic because nothing may be placed between the look at the streams and the removal.
-- KEYS  1 deploy   then the work streams of the version
-- ARGV  1 version   2 how long its streams stay, ms   3 '1' where its record is kept
-- RESULT 0 withdrawn, else how many entries are left; -1 where it is the stable version,
--       -2 where it is the canary
-- part: epoch
local version = ARGV[1]
local record = redis.call('HMGET', KEYS[1], 'stable', 'canary', 'version:' .. version)
if record[1] == version then return -1 end
-- One that cannot be read is not followed by anybody.
local read, canary = pcall(cjson.decode, record[2] or '{}')
if read and type(canary) == 'table' and canary.version == version then return -2 end
local left = 0
for i = 2, #KEYS do left = left + redis.call('XLEN', KEYS[i]) end
if left > 0 then return left end
if record[3] then
  redis.call('HDEL', KEYS[1], 'version:' .. version, 'draining:' .. version, 'workers:' .. version)
  local epoch = next_epoch(KEYS[1])
  if ARGV[3] == '1' then
    local kept = string.format('{"epoch":%d,"record":', epoch) .. record[3] .. '}'
    redis.call('HSET', KEYS[1], 'kept:' .. version, kept)
  end
end
for i = 2, #KEYS do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
return 0
