#!lua flags=allow-oom
-- undeploy: take a model out of service. Refused while requests are open, unless forced; forced,
-- the open ones are forgotten and their callers time out.
--
-- Workers stay among the living for as long as the mark stays, since the model may be deployed
-- again before they have noticed; and what operators may still want stays for a while.
--
-- KEYS  1 mark of an undeployed model   2 workers   3 lost   4 journal   5 dead letters
--       6 deploy   7 due   then all others that it has
-- ARGV  1 forced: '1' or '0'   2 how long the mark and the workers stay, ms
--       3 how long journal and dead letters stay, ms   4 epoch and 5 nonce of the record that
--       names the keys (neither: any record)
-- RESULT {removed 1 or 0, open requests}; {-1, 0} where the record is another by now
-- part: portions
local record = redis.call('HMGET', KEYS[6], 'epoch', 'nonce')
if ARGV[4] and ((record[1] or '0') ~= ARGV[4] or (record[2] or '') ~= ARGV[5]) then return {-1, 0} end
local open = redis.pcall('ZCARD', KEYS[7])
if ARGV[1] ~= '1' then
  if type(open) ~= 'number' then return open end
  if open > 0 then return {0, open} end
end
in_portions('DEL', KEYS[6], KEYS, 7, #KEYS)
redis.call('SET', KEYS[1], '1', 'PX', ARGV[2])
for i = 2, 3 do redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
for i = 4, 5 do redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
return {1, type(open) == 'number' and open or 0}
