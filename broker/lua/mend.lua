#!lua
-- mend: restore what a deployed model needs and somebody deleted, or a server that came back
-- empty, has taken away: the deploy record, tenants, streams, groups.
--
-- Atomic because an operator may change the model or take it out of service meanwhile: then the
-- record has another epoch, or the mark is there, and nothing is made. Groups start at 0, so that
-- nothing added since is passed over. A record that was put back by a router that knew less, and
-- not changed since, gives way to the one known here: the nonce of a record that was put back
-- names the epoch of what was known, `restored:<epoch>:<chance>`.
--
-- KEYS  1 deploy   2 tenants   3 mark of an undeployed model
--       then ingress streams, then work streams
-- ARGV  1 epoch of the record known   2 nonce for putting it back   3 number of tenants
--       then the tenants
--       (none: they are not known, and not made)
--       then name and value of each field of the record known
-- RESULT how many keys and groups were made; -1 where the record had to be made as well;
--       -2 where the mark is there; the error WRONGTYPE where a key has the wrong type, after
--       all others were mended
-- part: epoch
-- part: portions
local tenants, made, foreign = tonumber(ARGV[3]), 0, nil

local function known_there(nonce)
  return tonumber(string.match(nonce or '', '^restored:(%d+):'))
end

if redis.call('EXISTS', KEYS[3]) == 1 then return -2 end
local found = redis.call('HMGET', KEYS[1], 'stable', 'epoch', 'nonce')
local there = known_there(found[3])
local restores = not found[1] or (there and there < known_there(ARGV[2]))
if not restores and (found[2] or '0') ~= ARGV[1] then return 0 end
if restores then
  redis.call('DEL', KEYS[1])
  in_portions('HSET', KEYS[1], ARGV, 4 + tenants, #ARGV)
  redis.call('HSET', KEYS[1], 'nonce', ARGV[2])
  next_epoch(KEYS[1])
end
if tenants > 0 then
  local members = redis.pcall('SCARD', KEYS[2])
  if type(members) ~= 'number' then
    foreign = KEYS[2]
  elseif members == 0 or restores then
    in_portions('SADD', KEYS[2], ARGV, 4, 3 + tenants)
    made = made + 1
  end
end
for i = 4, #KEYS do
  local groups = redis.pcall('XINFO', 'GROUPS', KEYS[i])
  if groups.err or #groups == 0 then
    local group = i <= 3 + tenants and 'router' or 'worker'
    local answer = redis.pcall('XGROUP', 'CREATE', KEYS[i], group, '0', 'MKSTREAM')
    if not answer.err then
      made = made + 1
    elseif string.sub(answer.err, 1, 9) == 'WRONGTYPE' then
      foreign = foreign or KEYS[i]
    else
      return answer
    end
  end
end
if foreign then return redis.error_reply('WRONGTYPE ' .. foreign .. ' is of a foreign kind') end
return restores and -1 or made
