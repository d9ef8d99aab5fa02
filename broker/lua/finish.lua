#!lua flags=allow-oom
-- finish: end requests. The only writer of terminal replies.
--
-- Atomic because the gate (removing the request from `due`), the reply, the tombstone and the end
-- of the work entry must be one step; whoever comes second finds the gate shut and writes nothing.
-- Runs when memory is full, since it frees more than it adds. Each item stands alone: a key of the
-- wrong type or a missing stream spoils only its own item. Journal and notifications are no part of
-- the promise: what is wrong with them stops nothing. Safe to repeat.
--
-- KEYS  1 due   2 journal   3 dead letters   then the streams
--       then for each item: tombstone, reply key   then blobs
-- ARGV  1 worker ('' = nobody's entry: expired, cancelled, refused after accept)
--       2 number of streams   3 number of items   4 journal lines kept
--       5 size up to which a notification carries the whole reply
--       6 dead letters kept   7 bytes of them kept
--       then for each item: number of its stream (0 = none), entry id, member of due, reply,
--       TTL of the reply ms, TTL of the tombstone ms, status, channel, id, journal line
--       ('' = none), '1' where the request is given up: its entry is kept among the dead letters
--       then for each blob: number of its item, content ('' = remove it), TTL ms
-- RESULT outcome of each item: ANSWERED, CLOSED (somebody was first), NOT_MINE,
--       KEPT (its dead letter could not be written: nothing was answered, nothing ended)
local due, journal, dead, worker = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local streams, items = tonumber(ARGV[2]), tonumber(ARGV[3])
local journal_max, whole_max = ARGV[4], tonumber(ARGV[5])
local letters_max, dead_bytes_max = ARGV[6], tonumber(ARGV[7])
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

-- A journal that takes nothing (a foreign key, ids that are used up) is begun anew.
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
  for _, part in ipairs({'stream', stream, 'reply', ARGV[a + 3]}) do letter[#letter + 1] = part end
  local written = redis.pcall('XADD', dead, 'MAXLEN', '~', letters_max, '*', unpack(letter))
  if type(written) == 'table' then return false end
  while redis.call('MEMORY', 'USAGE', dead) > dead_bytes_max and redis.call('XLEN', dead) > 1 do
    redis.call('XTRIM', dead, 'MAXLEN', math.floor(redis.call('XLEN', dead) * 0.9))
  end
  return true
end

-- Who ends a request without its entry does not know its time-out. Until its deadline, copies of
-- its ingress entry would be accepted: the tombstone stays so much longer.
local function until_deadline(member)
  local deadline = redis.call('ZSCORE', due, member)
  if not deadline then return 0 end
  return math.max(0, tonumber(deadline) - 1000 * tonumber(redis.call('TIME')[1]))
end

local function answer(item, a, tombstone, reply)
  local s, ttl = tonumber(ARGV[a]), ARGV[a + 5]
  if s == 0 then ttl = string.format('%d', tonumber(ttl) + until_deadline(ARGV[a + 2])) end
  if s > 0 and ARGV[a + 10] == '1' and redis.call('ZSCORE', due, ARGV[a + 2]) then
    if not write_letter(item, a, KEYS[3 + s]) then return 'KEPT' end
  end
  if redis.call('ZREM', due, ARGV[a + 2]) ~= 1 then return 'CLOSED' end
  keep_blobs(item)
  if redis.pcall('RPUSH', reply, ARGV[a + 3]) ~= 1 then
    redis.call('DEL', reply)
    redis.call('RPUSH', reply, ARGV[a + 3])
  end
  redis.call('PEXPIRE', reply, ARGV[a + 4])
  redis.call('SET', tombstone, ARGV[a + 6], 'PX', ttl)
  notify(ARGV[a + 7], ARGV[a + 3], ARGV[a + 8])
  if ARGV[a + 9] ~= '' then write_journal(ARGV[a + 9]) end
  return 'ANSWERED'
end

local a, k = 8 + 11 * items, 4 + streams + 2 * items
while k <= #KEYS do
  local item = tonumber(ARGV[a])
  blobs[item] = blobs[item] or {}
  table.insert(blobs[item], {key = KEYS[k], content = ARGV[a + 1], ttl = ARGV[a + 2]})
  a, k = a + 3, k + 1
end
a, k = 8, 4 + streams
for i = 1, items do
  local s = tonumber(ARGV[a])
  if s > 0 and not is_mine(KEYS[3 + s], ARGV[a + 1]) then
    outcomes[i] = 'NOT_MINE'
  else
    outcomes[i] = answer(i, a, KEYS[k], KEYS[k + 1])
    if s > 0 and outcomes[i] ~= 'KEPT' then
      over[s] = over[s] or {}
      table.insert(over[s], ARGV[a + 1])
    end
  end
  a, k = a + 11, k + 2
end
for s, entries in pairs(over) do
  redis.call('XACK', KEYS[3 + s], 'worker', unpack(entries))
  redis.call('XDEL', KEYS[3 + s], unpack(entries))
end
for _, channel in ipairs(channels) do
  redis.pcall('SPUBLISH', channel, cmsgpack.pack(notes[channel]))
end
return outcomes
