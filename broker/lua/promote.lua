#!lua flags=allow-oom
-- promote: move parked requests to their queues.
--
-- Atomic because a request must lie in one place only, and because two routers do this at once. By
-- an old deploy record it would go into a stream that nobody reads any more.
-- One whose request is closed meanwhile ends here. It takes no room: the request is open already.
--
-- KEYS  1 due   2 later   3 parked   4 deploy   then for each item: queue, bell
-- ARGV  1 epoch and 2 nonce of the deploy record that the router has read
--       then the parked entry ids
-- RESULT the error STALE where the deploy record is another by now, or WRONGTYPE where `due`, `later`
--       or `parked` has the wrong type: nothing has happened; else
--       outcome of each item: MOVED, CLOSED, GONE (somebody was first), STALE (no such queue)
-- part: ring
local record = redis.pcall('HMGET', KEYS[4], 'stable', 'epoch', 'nonce')
if record.err or not record[1] or (record[2] or '0') ~= ARGV[1] or (record[3] or '') ~= ARGV[2] then
  return redis.error_reply('STALE the deploy record is another by now')
end
local due, later, parked = KEYS[1], KEYS[2], KEYS[3]
-- Before anything is written.
redis.call('ZCARD', due)
redis.call('ZCARD', later)
redis.call('XLEN', parked)

local function promote(id, queue, bell)
  -- An error: somebody has written something other than an entry id there.
  local entry = redis.pcall('XRANGE', parked, id, id)[1]
  if not entry then return 'GONE' end
  local fields = entry[2]
  -- One that no router wrote belongs to no request, and is removed with the closed ones; so is
  -- one of more parts than any router writes, or than can be moved.
  if #fields > 1000 then return 'CLOSED' end
  local member = (fields[8] or '') .. ':' .. (fields[6] or '')
  if not redis.call('ZSCORE', due, member) then return 'CLOSED' end
  -- No id: no such queue. An error: a foreign key, which must not hold up the other items.
  local added = redis.pcall('XADD', queue, 'NOMKSTREAM', '*', unpack(fields, 5))
  if type(added) ~= 'string' then return 'STALE' end
  ring(bell)
  return 'MOVED'
end

local outcomes = {}
for i = 1, #ARGV - 2 do
  local id = ARGV[2 + i]
  local outcome = promote(id, KEYS[3 + 2 * i], KEYS[4 + 2 * i])
  if outcome ~= 'STALE' then
    redis.pcall('XDEL', parked, id)
    redis.call('ZREM', later, id)
  end
  outcomes[i] = outcome
end
return outcomes
