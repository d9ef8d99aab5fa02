#!lua
-- restore: make streams and groups of a deployed model anew that have gone.
--
-- Atomic because a model that is undeployed meanwhile must not get its streams back. Groups start
-- at the first entry, not at the last: what came before is read, and what is finished already is
-- told from what is not by `due` and the tombstones.
--
-- KEYS  1 deploy   then ingress streams, one a tenant, then work streams
-- ARGV  1 epoch of the deploy record that the streams are known from   2 number of tenants
-- RESULT {number of groups made, {key of a foreign kind, error, …}}
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return {0, {}} end
local made, unusable = 0, {}
for i = 2, #KEYS do
  local group = i <= 1 + tonumber(ARGV[2]) and 'router' or 'worker'
  local answer = redis.pcall('XGROUP', 'CREATE', KEYS[i], group, '0', 'MKSTREAM')
  if not answer.err then
    made = made + 1
  elseif string.sub(answer.err, 1, 9) == 'WRONGTYPE' then
    unusable[#unusable + 1] = KEYS[i]
    unusable[#unusable + 1] = answer.err
  elseif string.sub(answer.err, 1, 9) ~= 'BUSYGROUP' then
    return answer
  end
end
return {made, unusable}
