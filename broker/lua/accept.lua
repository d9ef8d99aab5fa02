#!lua
-- accept: turn ingress entries into open requests, or refuse them. The only way into `due`.
--
-- Atomic because the check for a repeat, the bound on open requests, the work entry, the open
-- request and the end of the ingress entry must be one step: a router that dies in between would
-- leave a request twice or not at all. Safe to repeat: a second call finds the request open.
-- What an old deploy record would have accepted, placed or refused is left as it is: a router that
-- was frozen must not act on one.
--
-- KEYS  1 ingress stream   2 due   3 later   4 parked   5 deploy   6 result TTLs that were asked for
--       7 stats   then for each queue: queue stream, bell of its version
--       then for each item: tombstone, reply key
-- ARGV  1 backlog   2 number of queues   3 number of items   4 TTL of refusals, ms
--       5 how far an entry id may lie ahead of the server's clock, ms
--       6 epoch and 7 nonce of the deploy record that the router has read
--       8 how long TTLs that were asked for are remembered, ms
--       then for each item: ingress entry id, member of due, number of its queue (0 = none),
--       timeout ms, refusal ('' = none), channel, delay ms before it may run, result TTL ms where
--       another than the default was asked for (0 = none), number of fields
--       and values that follow, these. The last four of them are: deadline, '', inputs, the inputs
--       ('' = copy from the ingress entry), or in their place inputs_at, where they lie; the script
--       fills in the deadline. A delayed request is parked; its timeout begins after the delay.
--       Of a refusal one follows at most: the field of the stats that counts it.
-- RESULT the error STALE where the deploy record is another by now, or WRONGTYPE where ingress or
--       `due` has the wrong type: nothing has happened; else
--       {number of open requests, outcome of each item}
--       OK        accepted              DUP    open or finished already; joins that one
--       REFUSED   refusal written       BUSY   backlog full; nothing written, entry kept
--       LATE      its deadline is past  CLOCK  entry id lies ahead of the clock (both: kept)
--       STALE     the queue is gone, or it or what parks has the wrong type; read the deploy
--                 record again (kept)
--       GONE      the ingress entry is no longer there
-- part: whole
-- part: count
-- part: now
-- part: ring
local record = redis.pcall('HMGET', KEYS[5], 'stable', 'epoch', 'nonce')
if record.err or not record[1] or (record[2] or '0') ~= ARGV[6] or (record[3] or '') ~= ARGV[7] then
  return redis.error_reply('STALE the deploy record is another by now')
end
local ingress, due, later, parked, ttls = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[6]
local backlog, queues, items = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local refusal_ttl, ahead, ttls_kept = ARGV[4], tonumber(ARGV[5]), ARGV[8]
redis.call('XLEN', ingress)  -- before anything is written: it may have the wrong type
local now = now_ms()
local open = redis.call('ZCARD', due)
local outcomes, over, rung = {}, {}, {}

local function refuse(reply, refusal, channel)
  redis.call('DEL', reply)
  redis.call('RPUSH', reply, refusal)
  redis.call('PEXPIRE', reply, refusal_ttl)
  redis.pcall('SPUBLISH', channel, cmsgpack.pack({refusal}))
end

local function copied_inputs(entry)
  local found = redis.call('XRANGE', ingress, entry, entry)[1]
  if not found then return nil end
  local fields = found[2]
  for i = 1, #fields, 2 do
    if fields[i] == 'inputs' then return fields[i + 1] end
  end
  return nil
end

-- Closed entries stay in a queue until a worker reads it, or parked until their time has come: they
-- must not pile up.
local lengths = {}
local function fault_of(stream)
  local length = lengths[stream] or redis.pcall('XLEN', stream)
  if type(length) ~= 'number' then return 'STALE' end
  lengths[stream] = length + 1
  return lengths[stream] > 2 * backlog and 'BUSY'
end

local function ring_once(bell)
  if not rung[bell] then ring(bell) end
  rung[bell] = true
end

-- False where the queue that it is to go to is gone, or the model with it, and where a foreign key
-- lies in the place of `later` or `parked`; nothing is left behind then.
local function has_parked(start, queue, bell, first, last)
  if redis.call('EXISTS', queue) == 0 then return false end
  if type(redis.pcall('ZCARD', later)) ~= 'number' then return false end
  local entry = redis.pcall('XADD', parked, '*', 'queue', queue, 'bell', bell,
    unpack(ARGV, first, last))
  if type(entry) ~= 'string' then return false end
  redis.call('ZADD', later, start, entry)
  return true
end

-- For those who end the request without its entry. What lies there while nothing is open is of
-- requests that were lost; a foreign key gives way.
local function remember_ttl(member, ttl)
  if open == 0 then redis.call('DEL', ttls) end
  if type(redis.pcall('HSET', ttls, member, ttl)) ~= 'number' then
    redis.call('DEL', ttls)
    redis.call('HSET', ttls, member, ttl)
  end
  redis.call('PEXPIRE', ttls, ttls_kept)
end

-- False where the stream is gone, and where its ids are used up: that must not hold up the other
-- items, nor leave a request open that no worker will ever see.
local function has_added(queue, first, last)
  local added = redis.pcall('XADD', queue, 'NOMKSTREAM', '*', unpack(ARGV, first, last))
  return type(added) == 'string'
end

-- `a`: where the item's arguments start; `last`: the last of them.
local function open_request(a, last, queue, bell)
  local entered = tonumber(string.match(ARGV[a], '^(%d+)'))
  if entered > now + ahead then return 'CLOCK' end
  local start = math.min(entered, now) + tonumber(ARGV[a + 6])
  local deadline = start + tonumber(ARGV[a + 3])
  if deadline <= now then return 'LATE' end
  if ARGV[last] == '' then
    ARGV[last] = copied_inputs(ARGV[a])
    if not ARGV[last] then return 'GONE' end
  end
  local fault = fault_of(start > now and parked or queue)
  if fault then return fault end
  ARGV[last - 2] = string.format('%d', deadline)
  if redis.call('ZADD', due, 'NX', deadline, ARGV[a + 1]) == 0 then return 'DUP' end
  local placed
  if start > now then
    placed = has_parked(start, queue, bell, a + 9, last)
  else
    placed = has_added(queue, a + 9, last)
  end
  if not placed then
    redis.call('ZREM', due, ARGV[a + 1])
    return 'STALE'
  end
  if start <= now then ring_once(bell) end
  if ARGV[a + 7] ~= '0' then remember_ttl(ARGV[a + 1], ARGV[a + 7]) end
  open = open + 1
  return 'OK'
end

local a, k = 9, 8 + 2 * queues
for i = 1, items do
  local tombstone, reply = KEYS[k], KEYS[k + 1]
  local last = a + 8 + tonumber(ARGV[a + 8])
  local outcome
  -- Most often there is neither a tombstone nor an earlier refusal: one look tells.
  local found = redis.call('EXISTS', tombstone, reply) > 0
  if found and redis.call('EXISTS', tombstone) == 1 then
    outcome = 'DUP'
  elseif ARGV[a + 4] ~= '' or open >= backlog then
    if redis.call('ZSCORE', due, ARGV[a + 1]) then
      outcome = 'DUP'
    elseif ARGV[a + 4] == '' then
      outcome = 'BUSY'
    else
      refuse(reply, ARGV[a + 4], ARGV[a + 5])
      if last > a + 8 then count(ARGV[last], 1) end
      outcome = 'REFUSED'
    end
  else
    local q = 6 + 2 * tonumber(ARGV[a + 2])
    outcome = open_request(a, last, KEYS[q], KEYS[q + 1])
    if found and outcome == 'OK' then redis.call('DEL', reply) end
  end
  if outcome == 'OK' or outcome == 'DUP' or outcome == 'REFUSED' or outcome == 'GONE' then
    over[#over + 1] = ARGV[a]
  end
  outcomes[i] = outcome
  a, k = last + 1, k + 2
end
if #over > 0 then
  redis.call('XACK', ingress, 'router', unpack(over))
  redis.call('XDEL', ingress, unpack(over))
end
keep_counts(KEYS[7])
return {open, outcomes}
