-- Count a change of the deploy record. HINCRBY would fail on what somebody else has written there;
-- epochs are compared for equality, with the nonce, so counting may start again.
local function next_epoch(record)
  local known = redis.call('HGET', record, 'epoch')
  local epoch = 1 + (known and #known <= 15 and string.match(known, '^%d+$') or 0)
  redis.call('HSET', record, 'epoch', string.format('%d', epoch))
  return epoch
end
