#!lua flags=allow-oom
-- finish: end requests. The only writer of terminal replies.
--
-- Atomic because the gate (removing the request from `due`), the reply, the tombstone and the end
-- of the work entry must be one step; the second caller returns CLOSED and writes nothing.
-- Runs when memory is full, since it frees more than it adds. Each item stands alone: a key of the
-- wrong type or a missing stream spoils only its own item. Journal, stats and notifications are no part
-- of the promise: what is wrong with them stops nothing. Safe to repeat.
--
-- KEYS  1 due   2 journal   3 dead letters   4 result TTLs that were asked for   5 stats
--       then the streams
--       then for each item: tombstone, reply key   then blobs
-- ARGV  1 worker ('' = nobody's entry: expired, cancelled, refused after accept)
--       2 number of streams   3 number of items   4 journal lines kept
--       5 size up to which a notification carries the whole reply
--       6 dead letters kept   7 bytes of them kept
--       8 longest TTL of a reply, ms   9 longest that a request may be open, ms
--       10 number of fields of the stats   then each of them, and by how much it grows where all items
--       are answered
--       then for each item: number of its stream (0 = none), entry id, member of due, reply,
--       TTL of the reply ms, TTL of the tombstone ms (both where no other TTL was asked for), status, channel, id, journal line
--       ('' = none), '1' where the request is given up: its entry is kept among the dead letters,
--       its part of the growth of the stats, as 'field number field number' ('' = none)
--       then for each blob: number of its item, content ('' = remove it), TTL ms
-- RESULT outcome of each item: ANSWERED, CLOSED (somebody was first), NOT_MINE,
--       KEPT (its dead letter could not be written: nothing was answered, nothing ended);
--       the error WRONGTYPE where `due` has the wrong type: nothing was written
-- part: whole
-- part: count
local due, journal, dead, ttls, worker = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local streams, items = tonumber(ARGV[2]), tonumber(ARGV[3])
local journal_max, whole_max = ARGV[4], tonumber(ARGV[5])
local letters_max, dead_bytes_max = ARGV[6], tonumber(ARGV[7])
local ttl_max, open_max = tonumber(ARGV[8]), tonumber(ARGV[9])
local outcomes, over, channels, notes, blobs = {}, {}, {}, {}, {}
redis.call('ZCARD', due)  -- before anything is written: it may have the wrong type
local asked = redis.pcall('HLEN', ttls)
local has_asked = type(asked) == 'number' and asked > 0

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

-- A journal that cannot be written (wrong type, ids used up) is created again.
local function write_journal(line)
  for _ = 1, 2 do
    local written = redis.pcall('XADD', journal, 'MAXLEN', '~', journal_max, '*', 'line', line)
    if type(written) == 'string' then return end
    redis.pcall('DEL', journal)
  end
end

-- What the reply points to is there before the reply is.
local function keep_blobs(item)
  for _, blob in ipairs(blobs[item] or {}) do
    if blob.content == '' then redis.call('UNLINK', blob.key)
    else redis.call('SET', blob.key, blob.content, 'PX', blob.ttl) end
  end
end

-- Inputs that lie in a blob, which goes with the request, are copied into the letter.
local function write_letter(item, a, stream)
  local entry = redis.call('XRANGE', stream, ARGV[a + 1], ARGV[a + 1])[1]
  local letter = entry and entry[2] or {}
  for i = 1, #letter, 2 do
    if letter[i] == 'inputs_at' and letter[i + 1] == 'blob' then
      local inputs = blobs[item] and redis.pcall('GET', blobs[item][1].key)
      if type(inputs) == 'string' then letter[i], letter[i + 1] = 'inputs', inputs end
    end
  end
  -- No router writes so much; if somebody else did, only id and tenant are kept.
  if #letter > 1000 then letter = {unpack(letter, 1, 4)} end
  for _, part in ipairs({'stream', stream, 'reply', ARGV[a + 3]}) do letter[#letter + 1] = part end
  local written = redis.pcall('XADD', dead, 'MAXLEN', '~', letters_max, '*', unpack(letter))
  if type(written) == 'table' then return false end
  while redis.call('MEMORY', 'USAGE', dead) > dead_bytes_max and redis.call('XLEN', dead) > 1 do
    redis.call('XTRIM', dead, 'MAXLEN', math.floor(redis.call('XLEN', dead) * 0.9))
  end
  return true
end

-- Who ends a request without its entry does not know its timeout. Until its deadline, copies of
-- its ingress entry would be accepted: the tombstone stays so much longer.
local function until_deadline(member)
  local deadline = redis.call('ZSCORE', due, member)
  if not deadline then return 0 end
  local left = tonumber(deadline) - 1000 * tonumber(redis.call('TIME')[1])
  return math.max(0, math.min(left, open_max))
end

-- How long a reply is kept: as its caller asked, however the request ends. A lost or foreign key, and
-- what somebody else has written there, mean the default.
local function ttl_of(member, default)
  if not has_asked then return default end
  local ttl = whole(redis.call('HGET', ttls, member), 1, ttl_max, default)
  redis.call('HDEL', ttls, member)
  return ttl
end

-- What is not answered does not count; but what its worker has held for longer than it was open does.
local function discount(growth, outcome, tombstone)
  for field, by in string.gmatch(growth, '(%S+) (%d+)') do count(field, -tonumber(by)) end
  if outcome == 'CLOSED' and redis.pcall('GET', tombstone) == 'deadline_exceeded' then
    count(string.match(growth, '^(.-):') .. ':fleet', 1)
  end
end

local function answer(item, a, tombstone, reply)
  local s, default, remembered = tonumber(ARGV[a]), tonumber(ARGV[a + 4]), tonumber(ARGV[a + 5])
  if s == 0 then remembered = remembered + until_deadline(ARGV[a + 2]) end
  if s > 0 and ARGV[a + 10] == '1' and redis.call('ZSCORE', due, ARGV[a + 2]) then
    if not write_letter(item, a, KEYS[5 + s]) then return 'KEPT' end
  end
  if redis.call('ZREM', due, ARGV[a + 2]) ~= 1 then return 'CLOSED' end
  local ttl = ttl_of(ARGV[a + 2], default)
  keep_blobs(item)
  if redis.pcall('RPUSH', reply, ARGV[a + 3]) ~= 1 then
    redis.call('DEL', reply)
    redis.call('RPUSH', reply, ARGV[a + 3])
  end
  redis.call('PEXPIRE', reply, string.format('%d', ttl))
  remembered = remembered - default + ttl
  redis.call('SET', tombstone, ARGV[a + 6], 'PX', string.format('%d', remembered))
  notify(ARGV[a + 7], ARGV[a + 3], ARGV[a + 8])
  if ARGV[a + 9] ~= '' then write_journal(ARGV[a + 9]) end
  return 'ANSWERED'
end

local first = 11 + 2 * tonumber(ARGV[10])
for i = 11, first - 1, 2 do count(ARGV[i], tonumber(ARGV[i + 1])) end
local a, k = first + 12 * items, 6 + streams + 2 * items
while k <= #KEYS do
  local item = tonumber(ARGV[a])
  blobs[item] = blobs[item] or {}
  table.insert(blobs[item], {key = KEYS[k], content = ARGV[a + 1], ttl = ARGV[a + 2]})
  a, k = a + 3, k + 1
end
a, k = first, 6 + streams
for i = 1, items do
  local s = tonumber(ARGV[a])
  if s > 0 and not is_mine(KEYS[5 + s], ARGV[a + 1]) then
    outcomes[i] = 'NOT_MINE'
  else
    outcomes[i] = answer(i, a, KEYS[k], KEYS[k + 1])
    if s > 0 and outcomes[i] ~= 'KEPT' then
      over[s] = over[s] or {}
      table.insert(over[s], ARGV[a + 1])
    end
  end
  if outcomes[i] ~= 'ANSWERED' and ARGV[a + 11] ~= '' then
    discount(ARGV[a + 11], s > 0 and outcomes[i], KEYS[k])
  end
  a, k = a + 12, k + 2
end
for s, entries in pairs(over) do
  redis.call('XACK', KEYS[5 + s], 'worker', unpack(entries))
  redis.call('XDEL', KEYS[5 + s], unpack(entries))
end
keep_counts(KEYS[5])
for _, channel in ipairs(channels) do
  redis.pcall('SPUBLISH', channel, cmsgpack.pack(notes[channel]))
end
return outcomes
