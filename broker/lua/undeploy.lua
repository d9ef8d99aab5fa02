#!lua flags=allow-oom
-- undeploy: take a model out of service. Refused while requests are open, unless forced; forced,
-- the open ones are forgotten and their callers time out.
--
-- KEYS  1 mark of an undeployed model   2 deploy   3 due   4 tenants
--       then all its streams and bells
-- ARGV  1 forced: '1' or '0'   2 how long the mark stays, ms
-- RESULT {removed 1 or 0, open requests}
local open = redis.call('ZCARD', KEYS[3])
if open > 0 and ARGV[1] ~= '1' then return {0, open} end
redis.call('DEL', unpack(KEYS, 2))
redis.call('SET', KEYS[1], '1', 'PX', ARGV[2])
return {1, open}
