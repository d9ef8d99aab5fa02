-- Ids of entries are pairs of whole numbers that Lua cannot hold; they have no leading zeros.
local function is_after(id, other)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  local other_ms, other_seq = string.match(other, '^(%d+)-(%d+)$')
  if not ms or not other_ms then return false end
  local function is_more(a, b) return #a > #b or (#a == #b and a > b) end
  return is_more(ms, other_ms) or (ms == other_ms and is_more(seq, other_seq))
end

-- Up to where the group of the workers has read a queue; nil where there is none.
local function last_delivered(queue)
  local groups = redis.pcall('XINFO', 'GROUPS', queue)
  for _, group in ipairs(groups.err and {} or groups) do
    local found = {}
    for i = 1, #group, 2 do found[group[i]] = group[i + 1] end
    if found.name == 'worker' then return found['last-delivered-id'] end
  end
  return nil
end
