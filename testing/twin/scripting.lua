-- What a server gives its scripts, as far as ours use it, and the way in and out of one.
--
-- ARGS   functions of the twin: call, pcall, pack (a list from its elements), decode (nil = no JSON)
-- RESULT compile, run
local call, protected_call, pack, decode = ...

local administration = {ACL = true, CONFIG = true, FLUSHALL = true}
local library = {
  redis = {
    call = call,
    pcall = protected_call,
    error_reply = function(text) return {err = text} end,
    status_reply = function(text) return {ok = text} end,
    -- Everybody may do everything that there is here.
    acl_check_cmd = function(name) return not administration[name] end,
  },
  cmsgpack = {pack = function(list) return pack(unpack(list)) end},
  cjson = {
    decode = function(text)
      local value = decode(text)
      if value == nil then error('Expected value but found invalid token') end
      return value
    end,
  },
  collectgarbage = collectgarbage, error = error, ipairs = ipairs, math = math, next = next,
  pairs = pairs, pcall = pcall, select = select, string = string, table = table,
  tonumber = tonumber, tostring = tostring, type = type, unpack = unpack,
}
-- Not on `_G`: lupa reads there without protection.
setmetatable(library, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. name .. "'", 2)
  end,
  __newindex = function() error('Attempt to modify a readonly table', 2) end,
})

local function write(out, value)
  local kind = type(value)
  if kind == 'string' then
    out[#out + 1] = '$' .. #value .. '\r\n' .. value .. '\r\n'
  elseif kind == 'number' then
    out[#out + 1] = string.format(':%d\r\n', value)
  elseif kind ~= 'table' then
    out[#out + 1] = value and ':1\r\n' or '$-1\r\n'
  elseif rawget(value, 'err') or rawget(value, 'ok') then
    local sign, text = value.err and '-' or '+', value.err or value.ok
    out[#out + 1] = sign .. string.gsub(text, '[\r\n]', ' ') .. '\r\n'
  else
    local at = #out + 1
    out[at] = ''
    local count = 0
    while value[count + 1] ~= nil do
      count = count + 1
      write(out, value[count])
    end
    out[at] = '*' .. count .. '\r\n'
  end
end

local function compile(name, source)
  -- `--` hides the line `#!lua …`, and lines keep their numbers.
  return setfenv(assert(loadstring('--' .. source, '@' .. name .. '.lua')), library)
end

-- The answer comes as RESP: the twin would pay for each look into a table.
local function run(script, keys, args)
  rawset(library, 'KEYS', keys)
  rawset(library, 'ARGV', args)
  local out = {}
  write(out, script())
  return table.concat(out)
end

return compile, run
