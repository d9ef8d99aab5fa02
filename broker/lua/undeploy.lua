#!lua flags=allow-oom
-- undeploy: take a model out of service. Refused while requests are open, unless forced; forced,
-- the open ones are forgotten and their callers time out.
--
-- KEYS  1 deploy   2 due   3 tenants   then all its streams and bells
-- ARGV  1 forced: '1' or '0'
-- RESULT {removed 1 or 0, open requests}
local open = redis.call('ZCARD', KEYS[2])
if open > 0 and ARGV[1] ~= '1' then return {0, open} end
redis.call('DEL', unpack(KEYS))
return {1, open}
