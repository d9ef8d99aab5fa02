#!lua flags=allow-oom
-- finish: end requests. The only writer of terminal replies.
--
-- Atomic because the gate (removing the request from `due`), the reply, the tombstone and the end
-- of the work entry must be one step; whoever comes second finds the gate shut and writes nothing.
-- Runs when memory is full, since it frees more than it adds. Each item stands alone: a key of the
-- wrong type or a missing stream spoils only its own item. Safe to repeat.
--
-- KEYS  1 due   2 journal   then the streams   then for each item: tombstone, reply key
--       then blobs
-- ARGV  1 worker ('' = nobody's entry: expired, cancelled, refused after accept)
--       2 number of streams   3 number of items   4 journal lines kept
--       5 size up to which a notification carries the whole reply
--       then for each item: number of its stream (0 = none), entry id, member of due, reply,
--       TTL of the reply ms, TTL of the tombstone ms, status, channel, id, journal line ('' = none)
--       then for each blob: number of its item, content ('' = remove it), TTL ms
-- RESULT outcome of each item: ANSWERED, CLOSED (somebody was first), NOT_MINE
local due, journal, worker = KEYS[1], KEYS[2], ARGV[1]
local streams, items = tonumber(ARGV[2]), tonumber(ARGV[3])
local journal_max, whole_max = ARGV[4], tonumber(ARGV[5])
local outcomes, over, channels, notes, blobs = {}, {}, {}, {}, {}

local function is_mine(stream, entry)
  local pending = redis.pcall('XPENDING', stream, 'worker', entry, entry, 1)
  return pending and not pending.err and pending[1] ~= nil and pending[1][2] == worker
end

local function notify(channel, reply, id)
  local list = notes[channel]
  if not list then
    list = {}
    notes[channel] = list
    channels[#channels + 1] = channel
  end
  list[#list + 1] = #reply <= whole_max and reply or id
end

-- What the reply points to is there before the reply is.
local function keep_blobs(item)
  for _, blob in ipairs(blobs[item] or {}) do
    if blob.content == '' then redis.call('UNLINK', blob.key)
    else redis.call('SET', blob.key, blob.content, 'PX', blob.ttl) end
  end
end

local function answer(item, a, tombstone, reply)
  if redis.call('ZREM', due, ARGV[a + 2]) ~= 1 then return 'CLOSED' end
  keep_blobs(item)
  if redis.pcall('RPUSH', reply, ARGV[a + 3]) ~= 1 then
    redis.call('DEL', reply)
    redis.call('RPUSH', reply, ARGV[a + 3])
  end
  redis.call('PEXPIRE', reply, ARGV[a + 4])
  redis.call('SET', tombstone, ARGV[a + 6], 'PX', ARGV[a + 5])
  notify(ARGV[a + 7], ARGV[a + 3], ARGV[a + 8])
  if ARGV[a + 9] ~= '' then
    redis.call('XADD', journal, 'MAXLEN', '~', journal_max, '*', 'line', ARGV[a + 9])
  end
  return 'ANSWERED'
end

local a, k = 6 + 10 * items, 3 + streams + 2 * items
while k <= #KEYS do
  local item = tonumber(ARGV[a])
  blobs[item] = blobs[item] or {}
  table.insert(blobs[item], {key = KEYS[k], content = ARGV[a + 1], ttl = ARGV[a + 2]})
  a, k = a + 3, k + 1
end
a, k = 6, 3 + streams
for i = 1, items do
  local s = tonumber(ARGV[a])
  if s > 0 and not is_mine(KEYS[2 + s], ARGV[a + 1]) then
    outcomes[i] = 'NOT_MINE'
  else
    outcomes[i] = answer(i, a, KEYS[k], KEYS[k + 1])
    if s > 0 then
      over[s] = over[s] or {}
      table.insert(over[s], ARGV[a + 1])
    end
  end
  a, k = a + 10, k + 2
end
for s, entries in pairs(over) do
  redis.call('XACK', KEYS[2 + s], 'worker', unpack(entries))
  redis.call('XDEL', KEYS[2 + s], unpack(entries))
end
for _, channel in ipairs(channels) do
  redis.call('SPUBLISH', channel, cmsgpack.pack(notes[channel]))
end
return outcomes
