#!lua flags=allow-oom
-- remove_bucket: remove the streams of a bucket out of service, once nothing lies in them.
--
-- Atomic because routers that have not read the new deploy record still add there: they come
-- before this, and the streams stay, or after, find no stream and read the record again. Runs when
-- memory is full, since it frees some.
--
-- KEYS  1 deploy   then the streams of the bucket
-- ARGV  1 field of the deploy record that lists the version's draining buckets   2 edge
-- RESULT 1 removed, 0 something lies there still, or the bucket is not draining
-- part: epoch
local listed = redis.call('HGET', KEYS[1], ARGV[1])
if not listed then return 0 end
local edge, others, found = tonumber(ARGV[2]), {}, false
-- What somebody else has written lists nothing.
local is_list, edges = pcall(cjson.decode, listed)
if not is_list or type(edges) ~= 'table' then return 0 end
for _, one in ipairs(edges) do
  if type(one) ~= 'number' then return 0 end
  if one == edge then found = true else others[#others + 1] = string.format('%d', one) end
end
if not found then return 0 end
for i = 2, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 1 then
    if redis.call('XLEN', KEYS[i]) > 0 then return 0 end
    local pending = redis.pcall('XPENDING', KEYS[i], 'worker')
    if not pending.err and pending[1] > 0 then return 0 end
  end
end
if #others == 0 then redis.call('HDEL', KEYS[1], ARGV[1])
else redis.call('HSET', KEYS[1], ARGV[1], '[' .. table.concat(others, ',') .. ']') end
next_epoch(KEYS[1])
redis.call('DEL', unpack(KEYS, 2))
return 1
