#!lua
-- mend: make anew what a deployed model needs and a foreign hand, or a server that came back
-- empty, has taken away: the deploy record, streams, groups.
--
-- Atomic because an operator may change the model or take it out of service meanwhile: then the
-- record has another epoch, or the mark is there, and nothing is made. Groups start at 0, so that nothing added
-- since is passed over.
--
-- KEYS  1 deploy   2 tenants   3 mark of an undeployed model
--       then ingress streams, then work streams
-- ARGV  1 epoch of the record known   2 fresh nonce   3 number of tenants   then the tenants
--       then name and value of each field of the record known
-- RESULT how many streams and groups were made; -1 where the record had to be made as well;
--       -2 where the mark is there; the error WRONGTYPE where a key is of a foreign kind, after
--       all others were mended
-- part: epoch
-- part: portions
local tenants, restored, made, foreign = tonumber(ARGV[3]), false, 0, nil
if redis.call('EXISTS', KEYS[3]) == 1 then return -2 end
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and epoch ~= ARGV[1] then return 0 end
if not epoch then
  in_portions('HSET', KEYS[1], ARGV, 4 + tenants, #ARGV)
  redis.call('HSET', KEYS[1], 'nonce', ARGV[2])
  next_epoch(KEYS[1])
  restored = true
end
local members = redis.pcall('SCARD', KEYS[2])
if type(members) ~= 'number' then
  foreign = KEYS[2]
elseif members == 0 then
  in_portions('SADD', KEYS[2], ARGV, 4, 3 + tenants)
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
return restored and -1 or made
