#!lua flags=allow-oom
-- move: place waiting entries of a queue anew, in the order given.
--
-- Atomic because a request must lie in one place only, and because a worker may take it meanwhile:
-- what was handed out stays where it is. By an old deploy record it would go into a stream that
-- nobody reads any more. It takes no room: the request is open already, under the deadline that its
-- entry says. Runs when memory is full: it frees what it adds.
--
-- KEYS  1 due   2 deploy   3 the queue   then for each item: its new queue, bell
-- ARGV  1 epoch and 2 nonce of the deploy record that the router has read
--       3 bytes after which no more is moved   then the entry ids
-- RESULT the error STALE where the deploy record is another by now, or WRONGTYPE where `due` has the
--       wrong type: nothing has happened; else outcome of each item:
--       MOVED, TAKEN (a worker has it), GONE (nobody waits for it: it ends here, unless somebody was
--       first), STALE (there is no such queue), LATER (bytes enough for one call)
-- part: after
-- part: ring
local record = redis.pcall('HMGET', KEYS[2], 'stable', 'epoch', 'nonce')
if record.err or not record[1] or (record[2] or '0') ~= ARGV[1] or (record[3] or '') ~= ARGV[2] then
  return redis.error_reply('STALE the deploy record is another by now')
end
local due, queue, bytes = KEYS[1], KEYS[3], tonumber(ARGV[3])
redis.call('ZCARD', due)  -- before anything is written: it may have the wrong type
local handed_out = last_delivered(queue)

local function size_of(fields)
  local size = 0
  for i = 1, #fields do size = size + #fields[i] end
  return size
end

local function move(id, target, bell)
  if not handed_out then return 'GONE' end
  if bytes <= 0 then return 'LATER' end
  if not is_after(id, handed_out) then return 'TAKEN' end
  local entry = redis.pcall('XRANGE', queue, id, id)[1]
  if not entry then return 'GONE' end
  local fields = entry[2]
  local member = (fields[4] or '') .. ':' .. (fields[2] or '')
  -- One that no router wrote belongs to no request; nor has one of them so many parts.
  if #fields > 1000 or not redis.call('ZSCORE', due, member) then
    redis.call('XDEL', queue, id)
    return 'GONE'
  end
  -- No id: no such queue. An error: a foreign key, which must not hold up the other items.
  local added = redis.pcall('XADD', target, 'NOMKSTREAM', '*', unpack(fields))
  if type(added) ~= 'string' then return 'STALE' end
  bytes = bytes - size_of(fields)
  redis.call('XDEL', queue, id)
  ring(bell)
  return 'MOVED'
end

local outcomes = {}
for i = 1, #ARGV - 3 do
  outcomes[i] = move(ARGV[3 + i], KEYS[2 + 2 * i], KEYS[3 + 2 * i])
end
return outcomes
