#!lua flags=no-writes
-- waiting: entries of a queue that no worker has taken yet, without their large fields.
--
-- A script because a queue may hold gigabytes of inputs, of which only the size is needed.
--
-- KEYS  1 queue
-- ARGV  1 id after which to begin ('' = none)   2 how many at most
--       3 fields of an entry, and 4 bytes of a value, that are shown at most
-- RESULT {{entry id, bytes of its inputs, {field, value, …}}, …}, in order
-- part: after
-- part: head
local start = last_delivered(KEYS[1])
if not start then return {} end
if ARGV[1] ~= '' and is_after(ARGV[1], start) then start = ARGV[1] end

local function inputs_bytes(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'inputs' then return #fields[i + 1] end
  end
  return 0
end

local found = redis.call('XRANGE', KEYS[1], '(' .. start, '+', 'COUNT', ARGV[2])
for i, entry in ipairs(found) do
  local head = head_of(entry[2], tonumber(ARGV[3]), tonumber(ARGV[4]))
  found[i] = {entry[1], inputs_bytes(entry[2]), head}
end
return found
