-- Count a change of the deploy record. HINCRBY would fail on what a foreign hand has written there;
-- epochs are compared for equality, beside the nonce, so that counting may begin anew.
local function next_epoch(record)
  local known = redis.call('HGET', record, 'epoch')
  local epoch = 1 + (known and #known <= 15 and string.match(known, '^%d+$') or 0)
  redis.call('HSET', record, 'epoch', string.format('%d', epoch))
  return epoch
end
