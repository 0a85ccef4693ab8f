-- What the scripts share: it stands before each of them.
local P = KEYS[1]
local function alive(session) return redis.call('EXISTS', P .. 's:' .. session) == 1 end
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function next_token()
  local token = redis.call('INCR', P .. 'token')
  if token < 1000000000000 then  -- the first one, or the server was wiped: on from its clock, in milliseconds
    token = now_ms()
    redis.call('SET', P .. 'token', string.format('%.0f', token))
  end
  return token
end
local function holder(name)
  local found = redis.call('HGET', P .. 'locks', name)
  if not found then return nil end
  local session, request = string.match(found, '^(%S+) (%S+)')
  return session, request, found
end
local function note(name, session, request, since_ms)
  local token = next_token()
  redis.call('HSET', P .. 'locks', name, string.format('%s %s %.0f %s', session, request, token, since_ms))
  return token
end
local function serve(name)
  while true do
    local head = redis.call('LPOP', P .. 'q:' .. name)
    if not head then
      redis.call('HDEL', P .. 'locks', name)
      return
    end
    local session, request = string.match(head, '^(%S+) (%S+)')
    if alive(session) then
      local token = note(name, session, request, string.format('%.0f', now_ms()))
      redis.call('RPUSH', P .. 'w:' .. request, string.format('%.0f', token))
      redis.call('PEXPIRE', P .. 'w:' .. request, 60000)
      return
    end
  end
end
local function free_the_dead(limit)
  local found = redis.call('HSCAN', P .. 'locks', 0, 'COUNT', limit)[2]
  for i = 1, #found, 2 do
    if not alive(string.match(found[i + 1], '^(%S+)')) then serve(found[i]) end
  end
end
