#!lua flags=allow-oom
-- recover: take over entries that a lost worker had taken, in their place.
--
-- Atomic because two peers must not claim the same entry, and because only a living worker may
-- hold entries, one that acts on the deploy record in force. An entry that was inside the lost
-- worker's device process counts one attempt more;
-- the others keep their count, since they never ran. Entries whose request is closed end here.
--
-- KEYS  1 workers   2 due   3 lost   4 hash of the lost worker   5 work stream
--       6 deploy
-- ARGV  1 worker that takes over   2 lost worker   3 how many at most
--       4 epoch and 5 nonce of the deploy record that the worker has read
-- RESULT {{entry id, attempt, 1 if it was inside the device process, {field, value, …}}, …},
--        or the error FENCED, or STALE where the deploy record is another by now
local me, gone = ARGV[1], ARGV[2]
if not redis.call('ZSCORE', KEYS[1], me) then
  return redis.error_reply('FENCED the worker is not among the living')
end
local record = redis.pcall('HMGET', KEYS[6], 'stable', 'epoch', 'nonce')
if record.err or not record[1] or (record[2] or '0') ~= ARGV[4] or (record[3] or '') ~= ARGV[5] then
  return redis.error_reply('STALE the deploy record is another by now')
end
if redis.call('SISMEMBER', KEYS[3], gone) == 0 then return {} end
redis.call('ZCARD', KEYS[2])  -- before anything is written: it may have the wrong type
local pending = redis.pcall('XPENDING', KEYS[5], 'worker', '-', '+', ARGV[3], gone)
if pending.err or #pending == 0 then return {} end

-- A foreign key in the place of the hash tells nothing, and must not hold up those who wait.
local inside, noted = {}, redis.pcall('HGET', KEYS[4], 'inside')
for member in string.gmatch(type(noted) == 'string' and noted or '', '%S+') do
  inside[member] = true
end

local taken = {}
for _, item in ipairs(pending) do
  local id, attempt = item[1], math.max(1, math.min(item[4], 1000000))
  local entry = redis.call('XRANGE', KEYS[5], id, id)[1]
  local fields = entry and entry[2] or {}
  local member = (fields[4] or '') .. ':' .. (fields[2] or '')
  if entry and redis.call('ZSCORE', KEYS[2], member) then
    if inside[member] then attempt = attempt + 1 end
    redis.call('XCLAIM', KEYS[5], 'worker', me, 0, id, 'RETRYCOUNT', attempt, 'JUSTID')
    taken[#taken + 1] = {id, attempt, inside[member] and 1 or 0, fields}
  else
    redis.call('XACK', KEYS[5], 'worker', id)
    redis.call('XDEL', KEYS[5], id)
  end
end
return taken
