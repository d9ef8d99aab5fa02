#!lua flags=allow-oom
-- take: hand waiting entries to a live worker, as many rows as it has room for.
--
-- Atomic because the check that the worker is alive and the hand-over must be one step: entries
-- given to a buried worker belong to nobody. Likewise for the deploy record: a worker that was
-- frozen must not take what is on hold by now, or would be run by another version's code. Entries
-- whose request is closed (answered, expired, cancelled) are dropped here, which is the only place
-- where they are. Runs when memory is full, or nothing that frees memory could run. An answer that
-- gets lost is found in the pending list.
--
-- KEYS  1 workers   2 due   3 bell of the version   4 deploy   5 stats
--       then the streams in the order wanted
-- ARGV  1 worker   2 room, rows   3 bytes after which no more is read
--       4 rows that one request counts for at most
--       5 epoch and 6 nonce of the deploy record that the worker has read
--       7 field of the stats that counts what waited in vain for longer than it was open
-- RESULT {{stream, {{entry id, {field, value, …}}, …}}, …}, or the error FENCED, or STALE where the
--       deploy record is another by now
-- part: whole
-- part: count
-- part: now
-- part: ring
local worker, room, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local bytes_max = bytes
if not redis.call('ZSCORE', KEYS[1], worker) then
  return redis.error_reply('FENCED the worker is not among the living')
end
local record = redis.pcall('HMGET', KEYS[4], 'stable', 'epoch', 'nonce')
if record.err or not record[1] or (record[2] or '0') ~= ARGV[5] or (record[3] or '') ~= ARGV[6] then
  return redis.error_reply('STALE the deploy record is another by now')
end
redis.call('ZCARD', KEYS[2])  -- before anything is read: it may have the wrong type
local weight_max = tonumber(ARGV[4])
-- Entries of one read: few while their size is not known, more once they have proved small.
local few, many, small = 16, 64, 16384

-- Scores of the entries' requests in `due`. The router writes id first and tenant second.
local function scores_of(entries)
  local members = {}
  for i, entry in ipairs(entries) do
    local fields = entry[2]
    -- One that no router wrote belongs to no request, and is removed with the closed ones.
    members[i] = (fields[4] or '') .. ':' .. (fields[2] or '')
  end
  return redis.call('ZMSCORE', KEYS[2], unpack(members))
end

local function weigh(fields)
  local rows = 1
  for i = 5, #fields, 2 do
    if fields[i] == 'rows' then rows = whole(fields[i + 1], 1, weight_max, 1) end
    -- Inputs outside the entry are fetched by the worker that takes it.
    if fields[i] == 'inputs_bytes' then bytes = bytes - whole(fields[i + 1], 0, bytes_max, 0) end
    bytes = bytes - #fields[i + 1]
  end
  room = room - rows
end

local now
local function is_overdue(fields)
  now = now or now_ms()
  for i = 5, #fields, 2 do
    if fields[i] == 'deadline' then return whole(fields[i + 1], 0, now, now) < now end
  end
  return false
end

-- Keep the entries whose request is open; end the others.
local function sort_out(stream, entries, kept)
  local scores, closed = scores_of(entries), {}
  for i, entry in ipairs(entries) do
    if scores[i] then
      weigh(entry[2])
      kept[#kept + 1] = entry
    else
      closed[#closed + 1] = entry[1]
      if is_overdue(entry[2]) then count(ARGV[7], 1) end
    end
  end
  if #closed > 0 then
    redis.call('XACK', stream, 'worker', unpack(closed))
    redis.call('XDEL', stream, unpack(closed))
  end
end

local function read(stream)
  local kept, step = {}, few
  while room > 0 and bytes > 0 do
    local count, before = math.min(room, step), bytes
    local answer = redis.pcall('XREADGROUP', 'GROUP', 'worker', worker, 'COUNT', count,
      'STREAMS', stream, '>')
    -- A stream that was just removed (an old bucket, an old version) is passed over.
    if not answer or answer.err then break end
    local entries = answer[1][2]
    sort_out(stream, entries, kept)
    if #entries < count then break end
    if before - bytes < count * small then step = many end
  end
  return kept
end

local taken = {}
for i = 6, #KEYS do
  if room <= 0 or bytes <= 0 then break end
  local entries = read(KEYS[i])
  if #entries > 0 then taken[#taken + 1] = {KEYS[i], entries} end
end
-- Stopped for lack of room: there may be more, so that another worker should look.
if room <= 0 or bytes <= 0 then ring(KEYS[3]) end
keep_counts(KEYS[5])
return taken
