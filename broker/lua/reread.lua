#!lua flags=no-writes
-- reread: ingress entries that a router has read and not ended, as many as it can hold.
--
-- A script because an entry must be measured before it is sent: one of hundreds of megabytes would
-- end the router, and the next one after it, for as long as it lies there.
--
-- KEYS  1 ingress stream
-- ARGV  1 router   2 id after which to begin   3 how many at most
--       4 bytes of one entry, and 5 of all of them, at most; one entry always fits
--       6 fields of an entry, and 7 bytes of a value, that are shown of one that is too large
-- RESULT {{entry id, {field, value, …} or nil where it was deleted, 1 if only its head is shown}, …};
--        empty once there are none behind the id
-- part: head
local each_max, all_max = tonumber(ARGV[4]), tonumber(ARGV[5])
local fields_max, head_bytes_max = tonumber(ARGV[6]), tonumber(ARGV[7])

local function size_of(fields)
  local size = 0
  for i = 1, #fields do size = size + #fields[i] end
  return size
end

local found, bytes = {}, 0
local pending = redis.call('XPENDING', KEYS[1], 'router', '(' .. ARGV[2], '+', ARGV[3], ARGV[1])
for _, item in ipairs(pending) do
  local entry = redis.call('XRANGE', KEYS[1], item[1], item[1])[1]
  local fields, too_large = entry and entry[2] or false, 0
  if fields and size_of(fields) > each_max then
    fields, too_large = head_of(fields, fields_max, head_bytes_max), 1
  elseif fields and #fields > 2 * fields_max then
    fields = head_of(fields, fields_max, head_bytes_max)  -- refused for how many it has
  end
  bytes = bytes + (fields and size_of(fields) or 0)
  if #found > 0 and bytes > all_max then break end
  found[#found + 1] = {item[1], fields, too_large}
  entry = nil
  if too_large == 1 then collectgarbage() end  -- or the server would keep a copy for long
end
return found
